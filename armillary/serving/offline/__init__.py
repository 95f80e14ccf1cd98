"""Offline serving on mixed GPUs: plans which layers run at which bits on which device, and in which micro-batches.

from armillary.serving.offline import SplitQuant
plan = SplitQuant(quality=40.0).plan("llama-3-8b", "mixed-offline-3", prompt=512, output=100, batch=32)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
