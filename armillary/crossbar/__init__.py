"""Analogue memory arrays: what cells hold after programming, what a read gives, and what both cost.

from armillary.crossbar import Crossbar
bar = Crossbar(w, device="EpiRAM", seed=0)
bar.multiply(x)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
