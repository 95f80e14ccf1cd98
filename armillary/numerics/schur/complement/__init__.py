"""One subdomain's Schur complement: the sparse factor, the staircase of its right-hand sides, and the assembler."""
