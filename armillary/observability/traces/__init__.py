"""Where the devices of a run lost their time, and the whole run as one trace for Paraver or Perfetto.

from armillary.observability.traces import read_run
run = read_run("reports/")                  # exports of Nsight Systems, or traces of PyTorch's profiler
run.to_paraver("run"); run.lost().shares
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
