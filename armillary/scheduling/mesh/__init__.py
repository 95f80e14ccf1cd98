"""Adaptive meshes: which rank owns which block.

from armillary.scheduling.mesh import place
ranks = place(costs, 512, policy="cplx", x=50)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
