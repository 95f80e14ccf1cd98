"""Microservices with a latency objective: how many cores each service gets, second by second.

from armillary.scheduling.microservices import Ddrm
cores = Ddrm.load("shop-8").decide(window)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
