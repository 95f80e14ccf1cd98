"""The files: bases and scalars in rows of 32 bytes."""
