"""Checkpoints of mixtures of experts: how often, by which method, at what cost, and what a failure takes away.

from armillary.training.checkpoint import Rckpt, plan_chunks
ckpt = Rckpt(model, optimizer, group, replicas=2)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
