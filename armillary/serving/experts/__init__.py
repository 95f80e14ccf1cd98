"""Where should a mixture's experts live, and which device should get which request or token, so that tokens need not travel?

from armillary.serving.experts import RoutingTrace, SemMoE
placement = SemMoE(devices=8).fit(RoutingTrace.read("routing.npz"))
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
