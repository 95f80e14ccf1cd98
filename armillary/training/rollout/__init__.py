"""Rollouts of RL post-training: which requests are started, where they run, and which ones a step does not wait for.

from armillary.training.rollout import TailBatcher
batcher = TailBatcher(dataset=range(1280), p0=128, r0=8, eta=1.25)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
