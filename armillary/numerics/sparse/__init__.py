"""Distributed sparse matrices: permute, extract and assign with every entry sent once.

from armillary.numerics.sparse import DistributedMatrix, permute, extract, assign
b = permute(s, rows=p, cols=p, threads=2)          # SciPy in, SciPy out
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
