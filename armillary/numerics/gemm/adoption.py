"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Call `emulated_matmul` or `dgemm` of armillary.numerics.gemm in place of a matrix product in double precision."
