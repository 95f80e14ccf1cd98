"""Pipelines of training: how layers and sequences are cut, what is recomputed, and in which order ranks work.

from armillary.training.pipeline import bmpipe, infinipipe, prt
prt.schedule(p=8, m=8, reuse=4).to_csv("schedule.csv")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
