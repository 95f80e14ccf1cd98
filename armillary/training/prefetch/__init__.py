"""Distributed training of graph neural networks: which remote features to keep, and when to renew them.

from armillary.training.prefetch import RudderBuffer
buffer = RudderBuffer(capacity=100_000, halo_ids=halo, features_fetch=store.rows)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
