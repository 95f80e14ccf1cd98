"""The program that is differentiated: integer-affine indices, scalar expressions, regions, and what may overwrite what."""
