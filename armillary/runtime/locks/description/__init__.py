"""How a lock is written down once, for the checker, the simulator and the comparison with the compiled code."""
