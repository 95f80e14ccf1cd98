"""The methods of every way to rearrange a distributed sparse matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.arena import NotForThisCase, Technique

if TYPE_CHECKING:
    from scipy.sparse import csc_array

    from armillary.comm.communicator import Communicator

    from ..distribution.dcsc import Array


@dataclass(frozen=True, eq=False)
class Operation:
    """What is to be done: `permute`, `extract` or `assign` with these indices; `batches` are (rows, cols, B) of assignments, in turn."""

    name: str
    rows: Array | None = None
    cols: Array | None = None
    batches: tuple[tuple[Array, Array, csc_array], ...] = ()


class Method(Technique):
    """One way to do the three operations over ranks. Subclasses are frozen dataclasses whose fields are the parameters.

    `deal` puts a SciPy matrix on the ranks as the method wants it, `apply` does one operation on what `deal` gave, and `collect` brings the
    result back to every rank or to rank 0. Only `apply` is timed. `ranks` says how many of p ranks it uses.
    """

    def ranks(self, p: int) -> int:
        """Returns how many of the case's ranks it runs on; raises `NotForThisCase` where it cannot."""
        return p

    def deal(self, matrix: csc_array, comm: Communicator) -> Any:
        """Returns the matrix on the ranks; every rank gives the same one."""
        raise NotImplementedError

    def apply(self, dealt: Any, operation: Operation, batches: list[Any]) -> Any:
        """Returns the result of the operation, dealt; `batches` are the dealt matrices of an assignment."""
        raise NotImplementedError

    def entries(self, dealt: Any) -> int:
        """Returns the number of this rank's entries."""
        raise NotImplementedError

    def collect(self, dealt: Any) -> csc_array | None:
        """Returns the whole matrix at rank 0."""
        raise NotImplementedError


def square(p: int) -> int:
    """Returns the side of the grid that sparse SUMMA needs."""
    side = int(np.sqrt(p) + 0.5)
    if side * side != p:
        raise NotForThisCase(f"needs a square number of ranks, not {p}")
    return side
