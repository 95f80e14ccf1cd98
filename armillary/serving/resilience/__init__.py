"""Serving through the loss of a GPU: how much throughput is kept, how long the interruption is, and what is lost.

from armillary.serving.resilience import failsafe_layout, plan_recovery
layout = failsafe_layout(kv_heads=8, layers=80, gpus=7)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
