"""How fast files are read back from a layout."""
