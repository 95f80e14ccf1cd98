"""One rank's block of a sparse matrix: doubly compressed sparse columns, so that memory follows the entries and not the columns.

Buluç and Gilbert, On the Representation and Multiplication of Hypersparse Matrices, IPDPS 2008.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError

if TYPE_CHECKING:
    from scipy.sparse import csc_array

Array = np.ndarray[Any, Any]
#: Values are moved as bits of this type, so that one kernel serves every type of a size, and NaNs keep their bits.
_CARRIERS: dict[int, np.dtype[Any]] = {n: np.dtype(f"u{n}") for n in (1, 2, 4, 8)} | {16: np.dtype(np.complex128)}
_MOST_INT32 = 2**31 - 1


def index_type(n: int) -> np.dtype[Any]:
    """Returns int32 where indices below n fit, else int64."""
    return np.dtype(np.int32 if n <= _MOST_INT32 else np.int64)


def carrier(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Returns the type under which values of `dtype` travel."""
    if dtype.kind not in "biufc" or dtype.itemsize not in _CARRIERS:
        raise InputError(f"values: found {dtype}; expected numbers of at most 16 bytes")
    return _CARRIERS[dtype.itemsize]


def triple_type(index: np.dtype[Any], dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Returns a packed entry (row, column, value): 16 bytes with int32 indices and float64 values."""
    return np.dtype([("i", index), ("j", index), ("v", carrier(dtype))])


@dataclass(frozen=True, eq=False)
class Dcsc:
    """A sparse block: `jc` its nonempty columns, `cp` where each begins in `ir` (rows) and `num` (values), one pointer more than columns.

    Columns ascend, rows ascend inside a column, and no entry stands twice. Indices are local; int32 where the block's shape allows.
    """

    shape: tuple[int, int]
    jc: Array
    cp: Array
    ir: Array
    num: Array

    @property
    def nnz(self) -> int:
        """Stored entries."""
        return self.ir.size

    @property
    def nbytes(self) -> int:
        """Bytes of the four arrays."""
        return int(self.jc.nbytes + self.cp.nbytes + self.ir.nbytes + self.num.nbytes)

    @property
    def bits(self) -> Array:
        """The values as bits, to be moved."""
        return self.num.view(carrier(self.num.dtype))

    @property
    def columns(self) -> Array:
        """The column of every entry."""
        return np.repeat(self.jc, np.diff(self.cp))

    @classmethod
    def empty(cls, shape: tuple[int, int], dtype: np.dtype[Any]) -> Dcsc:
        """Returns a block without entries."""
        index = index_type(max(shape))
        return cls(shape, np.empty(0, index), np.zeros(1, np.int64), np.empty(0, index), np.empty(0, dtype))

    @classmethod
    def from_csc(cls, matrix: csc_array) -> Dcsc:
        """Returns the block of a canonical `csc_array`; its arrays are shared where their types are right."""
        shape = (int(matrix.shape[0]), int(matrix.shape[1]))
        index = index_type(max(shape))
        carrier(matrix.dtype)
        jc = np.flatnonzero(np.diff(matrix.indptr))
        cp = np.append(matrix.indptr[jc], matrix.indptr[-1]).astype(np.int64)
        return cls(shape, jc.astype(index), cp, matrix.indices.astype(index, copy=False), np.ascontiguousarray(matrix.data))

    def to_csc(self) -> csc_array:
        """Returns the block as a `csc_array` with sorted indices; takes one pointer for every column."""
        from scipy.sparse import csc_array

        counts = np.zeros(self.shape[1] + 1, np.int64)
        counts[self.jc.astype(np.int64) + 1] = np.diff(self.cp)
        pointers = np.cumsum(counts)
        if self.nnz <= _MOST_INT32:
            pointers = pointers.astype(self.ir.dtype)
        found = csc_array((self.num, self.ir, pointers), shape=self.shape)
        found.has_canonical_format = True
        return found
