"""Linear programs: first-order methods on a CPU or a GPU, and in analogue memory.

from armillary.numerics.lp import read_mps, solve
found = solve(read_mps("afiro.mps"))
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
