"""Queueing policies of a batch system, and the file system that their jobs share.

from armillary.scheduling.batch import EquilibrIO, simulate
EquilibrIO(fairness=0.1).choose(queue, running, free_nodes=12, capacity=80e9)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
