"""Halo exchanges of stencil codes over MPI: packed by hand or by datatype, through any call.

from armillary.network.halo import Halo, tune
plan = Halo(a.shape, a.dtype, 1, comm, (2, 2), periodic=True).plan("datatype", "p2p-persistent")
plan.exchange(a)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
