"""Kernels to differentiate, written in plain NumPy from their definitions, with the names, arguments and sizes of NPBench."""
