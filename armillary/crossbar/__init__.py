"""Analogue memory arrays: the conductances that cells hold after programming, the results of reads, and the cost of both.

from armillary.crossbar import Crossbar
bar = Crossbar(w, device="EpiRAM", seed=0)
bar.multiply(x)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
