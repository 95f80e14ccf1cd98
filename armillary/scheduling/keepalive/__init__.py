"""Serverless keep-alive: how long an idle pod stays warm, weighed between cold starts and idle carbon.

from armillary.scheduling.keepalive import LaceRl
controller = LaceRl.load(lam=0.5)
seconds = controller.keep_alive("resize-image", now=1718000000.0, ci=312.0)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
