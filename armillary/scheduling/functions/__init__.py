"""Functions with deadlines on unlike nodes: how many vCPUs each call gets, and where.

from armillary.scheduling.functions import Call, Dhrt, Worker
dhrt = Dhrt()
node, vcpu, memory_mb = dhrt.allocate(Call("resize", deadline_s=3.0), [Worker("n1", "standard", cores=32, free=20)])
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
