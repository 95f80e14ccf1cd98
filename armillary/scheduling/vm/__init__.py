"""VM placement and migration: which host suits which VM, so that nobody's quality of service drops.

from armillary.scheduling.vm import Trace
best = Trace.load().recommend(vm, hosts, k=10)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
