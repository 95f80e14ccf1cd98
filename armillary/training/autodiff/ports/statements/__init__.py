"""Ports statement by statement: a loop becomes `fori_loop`, an assignment `.at[].set`, a slice that depends on a loop variable a mask.

JAX's reverse mode wants loops of fixed length, so a loop up to a variable runs over the whole range and keeps what is outside unchanged.
Every function returns what the kernel's result is.
"""
