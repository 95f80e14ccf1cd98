"""Simulation fields made small with every value within an error bound.

from armillary.compression import fields as fz data = fz.compress(x, bound=1e-3, mode="rel", pipeline="quality") y = fz.decompress(data)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
