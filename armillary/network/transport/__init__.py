"""Transports between simulations and analyses: files and staging in simulated time, blocks, and real runs over ADIOS2.

from armillary.network.transport import redistribution, blocks
table = redistribution((8, 8, 8), blocks((8, 8, 8), (2, 2, 2)), blocks((8, 8, 8), (1, 1, 4)))
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
