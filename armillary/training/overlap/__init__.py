"""Fused multi-GPU operators: which transfer mechanism and which overlap schedule hides communication best.

from armillary.training.overlap import advise
print(advise("gemm_rs", m=16384, n=16384, k=2048, devices=8, device="h100").recipe())
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
