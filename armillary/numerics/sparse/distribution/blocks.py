"""The blocks of a matrix on a process grid: which rank owns them, and which rank answers for which index."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.errors import InputError

from .dcsc import Array

if TYPE_CHECKING:
    from armillary.comm.communicator import Communicator
    from armillary.comm.topology.process_grid import ProcessGrid


def process_grid(comm: Communicator, grid: tuple[int, int] | ProcessGrid | None) -> ProcessGrid:
    """Returns the grid asked for; without one as square as the number of ranks allows, 2 × 3 for six."""
    from armillary.comm.topology.process_grid import ProcessGrid

    if isinstance(grid, ProcessGrid):
        if grid.comm is not comm:
            raise InputError("grid: found one of other ranks; expected one of this communicator")
        return grid
    if grid is None:
        rows = next(r for r in range(math.isqrt(comm.size), 0, -1) if comm.size % r == 0)
        grid = (rows, comm.size // rows)
    if len(grid) != 2 or not all(isinstance(side, int) for side in grid):
        raise InputError(f"grid: found {grid!r}; expected two whole numbers")
    return comm.grid(*grid)


@dataclass(frozen=True)
class Blocks:
    """An m × n matrix dealt on pr × pc ranks: rank (r, c) owns rows [r·mb, (r+1)·mb) and columns [c·nb, (c+1)·nb).

    Index i of the rows is *answered for* by one rank of its grid row: that row's mb indices are dealt to its pc ranks in pieces of ⌈mb/pc⌉.
    So a vector that has been brought to who answers is whole after one allgather along grid rows. Columns are dealt the same way, along
    grid columns.
    """

    m: int
    n: int
    pr: int
    pc: int

    @property
    def mb(self) -> int:
        """Rows of a block."""
        return max(1, -(-self.m // self.pr))

    @property
    def nb(self) -> int:
        """Columns of a block."""
        return max(1, -(-self.n // self.pc))

    def rows(self, r: int) -> range:
        """Returns the rows of grid row r."""
        return range(min(self.m, r * self.mb), min(self.m, (r + 1) * self.mb))

    def columns(self, c: int) -> range:
        """Returns the columns of grid column c."""
        return range(min(self.n, c * self.nb), min(self.n, (c + 1) * self.nb))

    def local_shape(self, r: int, c: int) -> tuple[int, int]:
        """Returns the shape of the block of rank (r, c)."""
        return len(self.rows(r)), len(self.columns(c))

    def answering(self, indices: Array, axis: int) -> Array:
        """Returns the rank that answers for each row (axis 0) or column (axis 1)."""
        if axis == 0:
            r = indices // self.mb
            return r * self.pc + (indices - r * self.mb) // -(-self.mb // self.pc)
        c = indices // self.nb
        return (indices - c * self.nb) // -(-self.nb // self.pr) * self.pc + c

    def answered(self, r: int, c: int, axis: int) -> range:
        """Returns the rows or columns that rank (r, c) answers for."""
        whole, part, parts = (self.rows(r), c, self.pc) if axis == 0 else (self.columns(c), r, self.pr)
        piece = -(-(self.mb if axis == 0 else self.nb) // parts)
        return range(min(whole.stop, whole.start + part * piece), min(whole.stop, whole.start + (part + 1) * piece))
