"""Finite-element matrices: five ways to assemble them, and a network that names the fastest for a mesh.

from armillary.numerics.assembly import Assembler, choose
stiffness = Assembler(points, cells, element="P1", physics="poisson")(coefficients)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
