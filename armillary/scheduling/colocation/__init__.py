"""Co-location of latency-sensitive containers on hyper-threads: who may sit next to whom.

from armillary.scheduling.colocation import Hestia, Server
live = Hestia.load()
placement = live.place(instance, servers)
placement.server, placement.cpuset
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
