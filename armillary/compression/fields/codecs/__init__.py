"""Codecs by which Zarr and numcodecs compress fields."""
