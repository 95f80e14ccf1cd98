"""Synchronisation of real directories by link transactions: safe to kill at any instant.

from armillary.storage.synchronization import Replica, connect, sync
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
