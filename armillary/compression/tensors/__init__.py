"""Tensors by low rank: tensor trains, layers that compute in them, and a model of an edge processor that makes them.

from armillary.compression.tensors import tt_svd
train = tt_svd(weights, eps=0.1)
train.ranks, train.full()
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
