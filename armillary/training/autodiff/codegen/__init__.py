"""From a program and a plan to the text of a Python function, and from that to machine code."""
