"""Pipelines on a CUDA device, to the bytes of the host; arrays and files stay there. Needs PyTorch with CUDA, and Triton."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
