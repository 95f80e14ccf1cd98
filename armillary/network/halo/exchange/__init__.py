"""Exchanges of halos over MPI: where they lie, how they travel, and how they are checked."""
