"""Locks that let one thread in at a time: Hapax locks beside ticket, queue, futex and Python locks; a checker and a simulator of them.

from armillary.runtime.locks import HapaxLock, HapaxMutex, check, lock
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
