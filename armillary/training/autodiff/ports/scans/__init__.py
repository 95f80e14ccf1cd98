"""The best functional rewrites that we found: loops as `lax.scan`, everything inside them vectorised, library calls where there are any.

Time loops take `checkpoint`: with it, segments of about √T steps are computed again in the reverse pass (`jax.checkpoint`).
"""
