"""Task graphs: declare tasks and the data that they access, and run them in threads, in processes, on Dask or in simulated time.

`Graph` infers the order of tasks from their declared accesses. `Threads`, `Processes`, `OnDask` and `Virtual` run the same graph and return
a `Run`, whose trace has the same schema for all of them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
