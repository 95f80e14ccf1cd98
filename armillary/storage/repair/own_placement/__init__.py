"""A user's own placement and bandwidth: files, problems and advice."""
