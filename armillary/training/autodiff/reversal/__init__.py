"""The part of a program that matters for the gradient, and the adjoint of each of its statements."""
