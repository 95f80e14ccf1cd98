"""Clocks in networks, kept together: gradient clock synchronisation beside trees, averaging and flooding; offsets of real clocks.

from armillary.network.clocks import GradientClocks, two_way_offset
offset, delay, error = two_way_offset(0.0, 15e-6, 20e-6, 25e-6)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
