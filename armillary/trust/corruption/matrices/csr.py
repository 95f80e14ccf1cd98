"""A square sparse matrix in rows, as the loops want it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = np.ndarray[Any, Any]
#: The most entries, so that an index has 31 bits.
MOST_ENTRIES = (1 << 31) - 1


@dataclass(frozen=True, eq=False)
class Csr:
    """values float64 [entries], columns int32 [entries], pointers int64 [rows + 1]; rows are in order and columns within a row too."""

    values: Array
    columns: Array
    pointers: Array

    @property
    def rows(self) -> int:
        """Rows and columns."""
        return len(self.pointers) - 1

    @classmethod
    def of(cls, matrix: Any, where: str = "matrix") -> Csr:
        """The matrix of SciPy or NumPy, checked: square, finite, real, with at least two rows and one entry."""
        from scipy.sparse import csr_array

        if getattr(matrix, "ndim", 0) != 2 or matrix.shape[0] != matrix.shape[1]:
            raise InputError(f"found {' × '.join(map(str, getattr(matrix, 'shape', ())))}; expected a square matrix", where=where)
        if np.dtype(matrix.dtype).kind == "c":
            raise InputError("found complex numbers; expected real ones", where=where)
        if matrix.shape[0] < 2 or matrix.shape[0] > MOST_ENTRIES:
            raise InputError(f"found {matrix.shape[0]} rows; expected from 2 to {MOST_ENTRIES:,}", where=where)
        found = csr_array(matrix)
        found.sum_duplicates()
        if not 0 < found.nnz <= MOST_ENTRIES:
            raise InputError(f"found {found.nnz} entries; expected from 1 to {MOST_ENTRIES:,}", where=where)
        values = np.array(found.data, np.float64)
        if not np.isfinite(values).all():
            at = int(np.argmin(np.isfinite(values)))
            row = int(np.searchsorted(found.indptr, at, "right")) - 1
            raise InputError(f"found {values[at]} in row {row}; expected finite numbers", where=where)
        made = cls(values, found.indices.astype(np.int32), found.indptr.astype(np.int64))
        if not in_range(made.columns, made.pointers):
            raise InputError("an index lies outside the matrix", where=where)
        return made

    def scipy(self) -> csr_array:
        """The same as SciPy's."""
        from scipy.sparse import csr_array

        return csr_array((self.values, self.columns, self.pointers), shape=(self.rows, self.rows))

    def symmetric(self) -> bool:
        """Whether it equals its transpose and has a positive diagonal."""
        found = self.scipy()
        return bool((abs(found - found.T)).max() <= 1e-12 * abs(found).max()) and bool((found.diagonal() > 0).all())


def in_range(columns: Array, pointers: Array) -> bool:
    """Whether a compiled loop may follow these: every column within the rows, every pointer within the entries.

    Rows may be empty, overlap or end before they begin; such a row has no entries.
    """
    rows, entries = len(pointers) - 1, len(columns)
    return bool(
        (not entries or (int(columns.min()) >= 0 and int(columns.max()) < rows))
        and int(pointers.min()) >= 0 and int(pointers.max()) <= entries
    )  # fmt: skip
