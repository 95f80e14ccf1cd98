"""One data-flow graph over kernels of several APIs: a task ends when its device is done, and no host thread waits for it.

from armillary.runtime.dataflow import Apis, Kernel, launch
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
