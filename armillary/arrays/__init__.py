"""Array operations that the array API lacks, with the same behaviour for NumPy, CuPy and PyTorch.

Every function returns the kind of array that it was given, on the same device. No copy to the host is hidden: `to_host`, and the few
functions that must read something back (their docstrings say so), count it in `copied_bytes`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
