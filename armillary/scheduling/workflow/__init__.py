"""Workflows and storage tiers: which configurations meet a deadline, and which choice matters at all.

from armillary.scheduling.workflow import QoSFlow
fitted = QoSFlow.from_wfformat("genome.json", nodes=[2, 5, 10]).fit()
print(fitted.regions())
print(fitted.ask(deadline_s=300, nodes_max=5))
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
