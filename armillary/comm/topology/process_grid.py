"""The process grid: ranks arranged as a matrix, over which dense and sparse linear algebra deals its blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.comm.communicator import Communicator


class ProcessGrid:
    """A grid of `rows` × `columns` ranks, numbered row by row: rank = i·columns + j.

    The communicator `row` joins the ranks of this row in the order of their columns, and `col` joins those of this column. Matrices are
    dealt in blocks of ceil(m / rows) × ceil(n / columns), so `grid.col.local_range(m)` gives the matrix rows of this rank and
    `grid.row.local_range(n)` its matrix columns.
    """

    def __init__(self, comm: Communicator, rows: int, columns: int) -> None:
        if rows < 1 or columns < 1 or rows * columns != comm.size:
            raise InputError(f"grid: found {rows} × {columns}; expected a product of {comm.size} ranks")
        self.comm = comm
        self.rows = rows
        self.columns = columns
        #: The row and the column of this rank.
        self.i, self.j = divmod(comm.rank, columns)
        row = comm.split(self.i, self.j)
        col = comm.split(self.j, self.i)
        assert row is not None
        assert col is not None
        self.row = row
        self.col = col

    def rank_at(self, i: int, j: int) -> int:
        """Return the rank at row i, column j of the grid."""
        if not (0 <= i < self.rows and 0 <= j < self.columns):
            raise InputError(f"grid: found place ({i}, {j}); expected one inside {self.rows} × {self.columns}")
        return i * self.columns + j

    def owner(self, i: int, j: int, shape: tuple[int, int]) -> int:
        """Return the rank that has element (i, j) of a matrix of `shape`."""
        return self.rank_at(self.col.owner(i, shape[0]), self.row.owner(j, shape[1]))
