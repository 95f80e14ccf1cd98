"""Array operations that the array API lacks, alike for NumPy, CuPy and PyTorch.

Every function gives back the kind of array that it was given, on the same device. Nothing goes to the host unseen: `to_host` and the
few functions that must read something back (their docstrings say so) count it in `copied_bytes`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
