"""Multi-scalar multiplications that somebody else computes: 2G2T's client and server, sums of our own beside them, and forgers.

from armillary.trust.outsourcing import Bases, Client, Server, msm
client, public = Client.setup(bases); point = client.verify(x, Server(bases, public).answer(x))
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
