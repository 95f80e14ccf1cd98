"""Pods on a cluster with solar panels: which run where and when, so that little energy is taken from the grid and deadlines are kept.

from armillary.scheduling.green import GreenK8s, play
played = play(work, GreenK8s().policy(work))
played.brown_kwh
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
