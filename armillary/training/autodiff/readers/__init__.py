"""Kernels in files: NPBench's folders, parsed and interpreted, never imported."""
