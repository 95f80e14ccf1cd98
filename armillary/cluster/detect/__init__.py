"""Detection: reads the running machine, or a copy of its /sys and /proc, into a cluster description."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
