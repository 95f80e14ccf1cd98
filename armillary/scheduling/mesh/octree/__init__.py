"""Block-structured meshes: which blocks there are, who borders on whom, and what refinement makes of them."""
