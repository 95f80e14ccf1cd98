"""MPI datatypes for blocks of arrays, which let the library find the elements itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from armillary.errors import InputError

from .geometry import Slices

Array = np.ndarray[Any, Any]


def element(dtype: np.dtype[Any]) -> Any:
    """Return MPI's datatype of one element."""
    from mpi4py import MPI

    if dtype.kind not in "biufc" or not dtype.isnative:
        raise InputError(f"dtype: found {dtype}; expected numbers in the byte order of the machine")
    return MPI.Datatype.fromcode(dtype.char)


def block_type(array: Array, block: Slices, how: str = "subarray") -> Any:
    """Return the committed datatype of a block of an array, counted from the array's first element.

    `subarray` needs an array that is contiguous in C or Fortran order. `vector` nests one strided vector per axis and takes any strides;
    it is used for other arrays in any case.
    """
    from mpi4py import MPI

    one = element(array.dtype)
    sizes = [s.stop - s.start for s in block]
    starts = [s.start for s in block]
    order = MPI.ORDER_C if array.flags.c_contiguous else MPI.ORDER_F if array.flags.f_contiguous else None
    if how == "subarray" and order is not None:
        return one.Create_subarray(list(array.shape), sizes, starts, order).Commit()
    made = one
    for size, stride in sorted(zip(sizes, array.strides), key=lambda pair: abs(pair[1])):
        before, made = made, made.Create_hvector(size, 1, stride)
        if before is not one:
            before.Free()
    at = sum(start * stride for start, stride in zip(starts, array.strides))
    placed = MPI.Datatype.Create_struct([1], [at], [made]).Commit()
    made.Free()
    return placed


def column_type(shape: Sequence[int], width: int, dtype: Any) -> Any:
    """Return the committed datatype of `width` columns of the interior of a two-dimensional array in C order, halo included in `shape`.

    Its extent is that of `width` elements, so that a count of k describes k neighbouring groups of columns, not groups that follow each
    other in memory.
    """
    kind = np.dtype(dtype)
    rows, row = int(shape[0]), int(shape[1])
    span = element(kind).Create_vector(rows - 2 * width, width, row)
    made = span.Create_resized(0, kind.itemsize * width).Commit()
    span.Free()
    return made


def memory_of(array: Array) -> Any:
    """Return the memory of an array from its first element to the end of its last, as mpi4py takes it, whatever its strides."""
    from mpi4py import MPI

    if any(stride < 0 for stride in array.strides):
        raise InputError("array: found a negative stride; expected strides of 0 bytes or more")
    if array.flags.c_contiguous:
        return MPI.buffer.fromaddress(array.ctypes.data, array.nbytes)
    span = array.itemsize + sum((n - 1) * stride for n, stride in zip(array.shape, array.strides))
    return MPI.buffer.fromaddress(array.ctypes.data, span)
