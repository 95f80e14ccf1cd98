"""Protocols in which two may start at once: written down, checked, projected to endpoints and monitors, explored, and run.

from armillary.trust.protocols import Monitor, check, endpoint, load
job = load("job.mst"); check(job)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
