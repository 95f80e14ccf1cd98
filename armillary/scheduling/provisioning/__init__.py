"""Provisioning at the edge: which instances of microservices go on which nodes, and how requests travel through them.

from armillary.scheduling.provisioning import Socl, read_problem
plan = Socl(alpha=0.5, workers=2).solve(read_problem("edge.json"))
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
