"""Communication backends under one program text, compared with direct calls of their libraries.

from armillary.network.backends import fastest_backend
fastest_backend("mymodule:program", ["threads", "mpi"])
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
