"""What the targets share: scripts, commands and container flags that are derived from a description."""
