"""Distributed quantum programs: in which order they run, and on which networked quantum processors.

from armillary.scheduling.quantum import Job, Network, plan, qft
schedule = plan([Job("transform", qft(16))], Network.of("qpu-6"), technique="epr-nodes")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
