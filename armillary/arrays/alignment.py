"""Where an array begins in memory, which decides the last bits of some products."""

from __future__ import annotations

import math
from importlib import import_module

import numpy as np

from .kinds import Array, kind_of

#: Bytes in a cache line, and in the widest vector register of a CPU (AVX-512).
ALIGNMENT = 64


def aligned(x: Array) -> Array:
    """`x` itself if it begins at an address that is a multiple of 64 bytes, and otherwise a copy that does.

    A BLAS may choose its path through a product by the addresses of the factors (the MKL inside PyTorch does), and another path gives other
    last bits. An array that was read from a file, or sliced out of a buffer, may begin anywhere, so align it before it is multiplied; the
    product then depends only on the values. Arrays on a device are returned as they are, because their allocators align them.
    """
    kind = kind_of(x)
    if kind == "torch":
        # PyTorch allocates host memory at multiples of 64 bytes.
        return x if x.device.type != "cpu" or x.data_ptr() % ALIGNMENT == 0 else import_module("torch").clone(x)
    if kind == "cupy" or x.ctypes.data % ALIGNMENT == 0:
        return x
    if x.flags.f_contiguous and not x.flags.c_contiguous:
        return aligned(x.T).T
    room = np.empty(math.prod(x.shape) * x.itemsize + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    copy = room[start : start + math.prod(x.shape) * x.itemsize].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy
