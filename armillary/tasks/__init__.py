"""Task graphs: say what work there is and what data it touches; run it in threads, processes, on Dask or in simulated time.

`Graph` takes tasks and infers their order from declared accesses; `Threads`, `Processes`, `OnDask` and `Virtual` run the same graph
and give a `Run` with a trace of one schema.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
