"""Offloading: does this serverless function deserve a GPU, and does it still deserve it an hour later?

from armillary.scheduling.offloading import GaiaRuntime, Metrics, explain, inspect
print(explain("func.py").text())
runtime = GaiaRuntime(inspect("func.py"))
mode = runtime.step(Metrics(time_s=60.0, rate_1m=0.4, rate_30m=0.02, p95_ms=1800.0))
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
