"""Wanted blocks of the inverse of a block-tridiagonal matrix with an arrow, on one process or many.

from armillary.numerics.selinv import BlockArrow, factor, selected_inverse
f = factor(BlockArrow.from_sparse(Q)); sd = selected_inverse(f).diagonal() ** 0.5
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
