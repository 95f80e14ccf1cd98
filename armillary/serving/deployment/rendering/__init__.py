"""Scripts, commands and container flags that are derived from a description and that several targets share."""
