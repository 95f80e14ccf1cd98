"""What Darshan counts of a list of operations, to the byte."""
