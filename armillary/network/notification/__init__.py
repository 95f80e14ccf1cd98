"""How a communication library learns that the network finished something: polling, sleeping, threads, interrupts, user interrupts.

from armillary.network.notification import policy
comm.run(program, ranks=8, backend="virtual", progress=policy("uintr"))
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
