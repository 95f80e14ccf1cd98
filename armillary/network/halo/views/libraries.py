"""One piece of memory as an array of NumPy, PyTorch, CuPy or Numba, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary import extras
from armillary.arrays import kind_of, on_accelerator
from armillary.errors import InputError, unknown

Array = Any
LIBRARIES = ("numpy", "torch", "cupy", "numba")


def adopted(name: str, x: Any) -> Array:
    """Return an array as one of NumPy, PyTorch or CuPy; other objects are taken through their array interface or DLPack."""
    try:
        kind_of(x)
        return x
    except InputError:
        pass
    if hasattr(x, "__cuda_array_interface__"):
        return extras.need("cupy").asarray(x)
    if hasattr(x, "__dlpack__"):
        return np.from_dlpack(x)
    raise InputError(f"found {type(x).__name__}; expected an array with __dlpack__ or __cuda_array_interface__", where=f'field "{name}"')


def as_library(x: Array, library: str) -> Array:
    """Return the same memory as an array of a library: one conversion, and no copy."""
    if library not in LIBRARIES:
        raise unknown("library", library, LIBRARIES)
    on_device = on_accelerator(x)
    if library == "torch":
        return extras.need("torch").from_dlpack(x)
    if on_device:
        if library == "numpy":
            raise InputError("found arrays on a GPU; expected cupy, torch or numba, because NumPy sees the memory of the host only")
        cupy = extras.need("cupy") if library == "cupy" else None
        if cupy is not None:
            return cupy.from_dlpack(x)
        cuda = extras.need("numba").cuda
        return cuda.as_cuda_array(x)
    if library == "cupy":
        raise InputError("found arrays on the host; expected numpy, torch or numba, because CuPy sees the memory of GPUs only")
    return np.from_dlpack(x)


def pointer(x: Array) -> int:
    """Return the address of an array's first element."""
    if hasattr(x, "data_ptr"):
        return int(x.data_ptr())
    interface = getattr(x, "__cuda_array_interface__", None) or x.__array_interface__
    return int(interface["data"][0])


def strides(x: Array) -> tuple[int, ...]:
    """Return the strides of an array in bytes."""
    if hasattr(x, "data_ptr"):
        return tuple(int(s) * x.element_size() for s in x.stride())
    return tuple(int(s) for s in x.strides)


def itemsize(x: Array) -> int:
    """Return the bytes of one element."""
    return int(x.element_size()) if hasattr(x, "data_ptr") else int(x.itemsize)
