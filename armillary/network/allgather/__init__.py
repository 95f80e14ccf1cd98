"""Neighbourhood allgather: plans for sparse graphs of ranks, and their execution on MPI, threads and virtual ranks.

from armillary.network.allgather import Cascade
g = Cascade().on(comm, sources, destinations, block_bytes)
g(send, recv)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
