"""Sharded training in which no block of an optimizer or quantiser is cut.

from armillary.training.sharding import ragged, shard
plan = ragged.plan({"w": (4096, 4096)}, n=8, blocks=[32, 32])
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
