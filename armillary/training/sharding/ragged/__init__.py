"""Ragged sharding: placements whose shares are unequal, blocks that must not be cut, and the planner that lays tensors out.

from armillary.training.sharding import ragged
plan = ragged.plan({"w": (4096, 4096), "b": (4096,)}, n=8, blocks=[{"pattern": "w", "block": [32, 32]}])
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
