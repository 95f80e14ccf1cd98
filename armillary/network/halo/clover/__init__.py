"""CloverLeaf in two dimensions: compressible Euler equations on a staggered grid, and the time step as a table that every rung follows."""
