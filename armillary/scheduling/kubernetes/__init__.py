"""The Kubernetes scheduler asks a technique over HTTP which nodes suit a pod: the scheduler extender, Pod and Node JSON, its configuration.

from armillary.scheduling.kubernetes import Extender, ExtenderServer, Judged
judge = lambda pod, nodes: Judged(refused={n.name: "too small" for n in nodes if n.cpu < pod.cpu}, scores={n.name: n.cpu for n in nodes})
with ExtenderServer(Extender(judge)) as server:
    server.url
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
