"""The description of a service: its schema, and the files and command lines from which it can be read."""
