"""Triton kernels, which run in PyTorch's current stream; a variant is a callable that launches one on a grid."""

from __future__ import annotations

from armillary import extras

from .api import Stream
from .torch import CudaStream, TorchCuda, cuda_of


class Triton(TorchCuda):
    """Triton on an NVIDIA device."""

    name = "triton"

    def __init__(self) -> None:
        extras.need("triton")
        self._torch = cuda_of(extras.need("torch"), self.name)

    def stream(self) -> Stream:
        """A CUDA stream that is PyTorch's current one while the callable runs."""
        return CudaStream(self._torch, self.name)
