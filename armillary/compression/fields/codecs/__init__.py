"""Fields inside Zarr and numcodecs."""
