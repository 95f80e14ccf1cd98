"""Linear algebra and optimisation, distributed and accelerated."""
