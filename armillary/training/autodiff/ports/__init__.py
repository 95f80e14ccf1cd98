"""The built-in kernels in JAX, twice: statement by statement, and rewritten as well as we can."""
