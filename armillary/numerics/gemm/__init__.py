"""Float64 matrix products from int8 units, as accurate as float64's own.

from armillary.numerics.gemm import dgemm
c, info = dgemm(a, b, method="adp", return_info=True)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
