"""Ranks as processes of an MPI job."""
