"""Models that do not fit the GPU: which tensors live where, and when each of them moves.

from armillary.training.offload import tencache
off = tencache.wrap(module, gpu_bytes=8e9, host_bytes=64e9)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
