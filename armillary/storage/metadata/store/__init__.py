"""The metadata store that can be used by itself."""
