"""Training over slow networks, with few synchronisations.

from armillary.training.lowcomm import DiLoCo
rounds = DiLoCo(model, inner, every=100)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
