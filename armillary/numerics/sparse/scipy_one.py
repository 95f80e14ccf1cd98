"""SciPy's fancy indexing of the whole matrix on one rank.

Virtanen and others: SciPy 1.0, fundamental algorithms for scientific computing in Python, Nature Methods 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .rearranging.method import Method, Operation

if TYPE_CHECKING:
    from scipy.sparse import csc_array

    from armillary.comm.communicator import Communicator


def indexed(matrix: Any, operation: Operation) -> csc_array:
    """Performs the operation by SciPy's indexing; indices are sorted."""
    from scipy.sparse import coo_array

    if operation.name != "assign":
        found: Any = matrix.tocsr()
        found = found if operation.rows is None else found[operation.rows]
        found = (found if operation.cols is None else found[:, operation.cols]).tocsc()
        found.sort_indices()
        return found
    for rows, cols, batch in operation.batches:
        old, new = matrix.tocoo(), batch.tocoo()
        marked_rows, marked_cols = np.zeros(matrix.shape[0], np.bool_), np.zeros(matrix.shape[1], np.bool_)
        marked_rows[rows] = True
        marked_cols[cols] = True
        kept = ~(marked_rows[old.coords[0]] & marked_cols[old.coords[1]])
        places = [np.concatenate((axis[kept], given[other])) for axis, given, other in zip(old.coords, (rows, cols), new.coords)]
        matrix = coo_array((np.concatenate((old.data[kept], new.data)), tuple(places)), shape=matrix.shape).tocsc()
        matrix.sort_indices()
    result: csc_array = matrix
    return result


def indexing_bytes(matrix: Any, result: Any) -> float:
    """Returns the bytes that SciPy's indexing reads and writes: rows, columns and a sort, each with an index and a value of every entry."""
    entry = 4 + matrix.dtype.itemsize
    return float(entry * (3 * matrix.nnz + 4 * result.nnz))


@dataclass(frozen=True)
class ScipyOne(Method):
    """Uses one rank and SciPy's indexing, however many ranks there are."""

    def ranks(self, p: int) -> int:
        return 1

    def deal(self, matrix: csc_array, comm: Communicator) -> tuple[Communicator, csc_array]:
        return comm, matrix

    def apply(self, dealt: tuple[Communicator, csc_array], operation: Operation, batches: list[Any]) -> tuple[Communicator, csc_array]:
        comm, matrix = dealt
        with comm.phase("build"):
            found = indexed(matrix, operation)
            comm.compute(bytes=indexing_bytes(matrix, found))
        return comm, found

    def entries(self, dealt: tuple[Communicator, csc_array]) -> int:
        return dealt[1].nnz

    def collect(self, dealt: tuple[Communicator, csc_array]) -> csc_array | None:
        return dealt[1]
