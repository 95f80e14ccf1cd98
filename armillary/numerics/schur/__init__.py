"""Schur complements of finite-element subdomains, and Total FETI on them.

from armillary.numerics.schur import SchurAssembler, total_feti
f = SchurAssembler(k, b, method="stepped")()
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
