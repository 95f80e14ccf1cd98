"""What makes a linear program smaller before it is solved, and takes the solution back to the program that was given."""
