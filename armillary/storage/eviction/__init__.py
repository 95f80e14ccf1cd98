"""Cache eviction: policies to replay traces with, to put into a program, and to compare.

from armillary.storage.eviction import FifoMep
hits = FifoMep().run(ids, capacity=1000)
cache = FifoMep().mapping(capacity=1000)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
