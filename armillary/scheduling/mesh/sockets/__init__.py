"""How placements leave: files, METIS graphs, and a running MPI job."""
