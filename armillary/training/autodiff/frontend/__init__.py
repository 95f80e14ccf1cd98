"""From the text of a Python function to a program of regions; nothing in the text is run."""
