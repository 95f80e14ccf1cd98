"""Trace files. Each format has one module, and `open_trace` finds the right one."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
