"""Rows on ranks: blocks of rows, the team that factors them, and Dask arrays."""
