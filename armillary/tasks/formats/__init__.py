"""Reads and writes graphs of other tools: WfFormat, DOT, STG, StarPU records and Dask graphs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
