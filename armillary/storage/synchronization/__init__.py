"""Synchronisation of replicas: protocols, the world they run in, and a count of what they lose.

from armillary.storage.synchronization import Operation, Schedule, TransactionalLink, simulate
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
