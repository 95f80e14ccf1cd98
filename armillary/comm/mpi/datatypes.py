"""NumPy's arrays, types and operations as mpi4py takes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from mpi4py import MPI

from armillary.comm.collectives.operations import Op
from armillary.comm.messages.buffers import Array, Parts
from armillary.comm.messages.layout import Layout

#: MPI's operations by their names here.
OPS = {name: getattr(MPI, name.upper()) for name in ("sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor")}


@lru_cache(maxsize=1024)
def datatype(layout: Layout, dtype: str) -> Any:
    """Return the committed derived datatype of a layout over elements of `dtype`. It is cached, because programs reuse a few layouts."""
    element = element_type(np.dtype(dtype))
    if layout.kind == "vector":
        count, length, stride, start = layout.numbers
        inner = element.Create_vector(count, length, stride)
        made = MPI.Datatype.Create_struct([1], [start * np.dtype(dtype).itemsize], [inner])
    elif layout.kind == "subarray":
        shape, sizes, starts = layout.numbers
        if layout.count == 0:
            made = element.Create_contiguous(0)
        else:
            made = element.Create_subarray(shape, sizes, starts)
    elif layout.kind == "indexed":
        made = element.Create_indexed(*layout.numbers)
    else:
        inside = [datatype(part, kind) for _, kind, part in layout.numbers]
        made = MPI.Datatype.Create_struct([1] * len(inside), [offset for offset, _, _ in layout.numbers], inside)
    return made.Commit()


@lru_cache(maxsize=256)
def element_type(dtype: np.dtype[Any]) -> Any:
    """Return MPI's datatype of one element; a type that MPI lacks becomes a run of bytes."""
    if dtype.kind in "biufc" and dtype.isnative:
        try:
            return MPI.Datatype.fromcode(dtype.char)
        except (ValueError, KeyError):
            pass
    return MPI.BYTE.Create_contiguous(dtype.itemsize).Commit()


def spec(array: Array) -> list[Any]:
    """Return an array of any type as mpi4py takes it."""
    return [array, array.size, element_type(array.dtype)]


def unowned_spec(array: Array) -> list[Any]:
    """Return the memory of an array as mpi4py takes it, without keeping the array alive."""
    return [MPI.buffer.fromaddress(array.ctypes.data, array.nbytes), array.size, element_type(array.dtype)]


def parts(blocks: Parts) -> list[Any]:
    """Return the parts of one array as mpi4py takes them."""
    return [blocks.whole, blocks.counts, blocks.starts, element_type(blocks.whole.dtype)]


def by_layout(array: Array, layouts: Sequence[Any]) -> list[Any]:
    """Return an array with one layout per rank as mpi4py takes it."""
    types = [MPI.BYTE if layout is None else datatype(layout, array.dtype.str) for layout in layouts]
    return [array, [0 if layout is None else 1 for layout in layouts], [0] * len(layouts), types]


def reduces(array: Array, op: Op) -> bool:
    """Return whether MPI has this operation for the type of the array, with the same answer."""
    return (
        bool(op.native)
        and array.dtype.kind in op.native
        and array.dtype.isnative
        and array.dtype.itemsize <= 16
        and array.dtype.char not in "egG"
    )
