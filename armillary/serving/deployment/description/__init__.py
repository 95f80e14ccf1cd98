"""The description of a service: its schema, the files that it is read from, and the command lines that it is understood from."""
