"""A program's numbers where they are worked on: in this process, on an accelerator, or one rank's share of the rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import array_api_compat
import numpy as np
from scipy.sparse import csr_array

from armillary.arrays import Array
from armillary.comm import Communicator
from armillary.errors import InputError

from ..program.problem import LinearProgram
from .scaled import Scaled


@dataclass(frozen=True)
class Place:
    """Where the vectors live (`xp`, `device`) and who holds the other rows (`comm`, None where all are here)."""

    xp: Any
    device: Any = None
    comm: Communicator | None = None

    def array(self, values: Any) -> Array:
        """Returns a vector of doubles or a matrix of sparse rows, put there."""
        if isinstance(values, csr_array):
            return self._rows(values)
        return self.xp.asarray(np.ascontiguousarray(values, np.float64), device=self.device)

    def _rows(self, matrix: csr_array) -> Any:
        if self.is_torch:
            torch = import_module("torch")
            parts = (torch.as_tensor(part, device=self.device) for part in (matrix.indptr, matrix.indices, matrix.data))
            with warnings.catch_warnings():
                # SciPy has made the rows, so that they are in order; and of sparse tensors only products are used.
                warnings.simplefilter("ignore", UserWarning)
                return torch.sparse_csr_tensor(*parts, size=matrix.shape, dtype=torch.float64)
        if self.is_cupy:
            return import_module("cupyx.scipy.sparse").csr_matrix(matrix)
        return matrix

    @property
    def is_torch(self) -> bool:
        """Whether vectors are PyTorch tensors."""
        return array_api_compat.is_torch_namespace(self.xp)

    @property
    def is_cupy(self) -> bool:
        """Whether vectors are CuPy arrays."""
        return array_api_compat.is_cupy_namespace(self.xp)

    def range(self, rows: int) -> slice:
        """Returns the slice of `rows` rows that is held here."""
        if self.comm is None:
            return slice(0, rows)
        rank, size = self.comm.rank, self.comm.size
        return slice(rows * rank // size, rows * (rank + 1) // size)


def place(xp: Any = None, comm: Communicator | None = None) -> Place:
    """Returns the place that a user names: the module `numpy`, `cupy` or `torch`, or a device of torch's ("cuda"); and ranks that share the
    rows.

    `xp=torch` means the first GPU where there is one.
    """
    if isinstance(xp, str):
        name, _, device = "torch", None, xp
    else:
        name, device = getattr(xp, "__name__", "numpy").rpartition(".")[2], None
    if name not in ("numpy", "cupy", "torch"):
        raise InputError(f"xp: found {name}; expected numpy, cupy, torch, or a device of torch such as 'cuda'")
    if name == "torch" and device is None:
        device = "cuda" if import_module("torch").cuda.is_available() else "cpu"
    return Place(import_module(f"array_api_compat.{name}"), device, comm)


@dataclass(frozen=True)
class Placed:
    """A program, scaled or not, whose products and sums are taken at a `Place`. Vectors of columns are whole on every rank."""

    place: Place
    matrix: Any
    transposed: Any
    cost: Array
    row_lower: Array
    row_upper: Array
    lower: Array
    upper: Array

    @property
    def xp(self) -> Any:
        """The namespace of its vectors."""
        return self.place.xp

    def activity(self, x: Array) -> Array:
        """Returns matrix · x for the rows that are here."""
        return self.matrix @ x

    def gradient(self, y: Array) -> Array:
        """Returns matrixᵀ · y over the rows of all ranks: one allreduce, in the order of ranks."""
        mine = self.transposed @ y
        if self.place.comm is None:
            return mine
        return self.place.comm.allreduce(mine, order="rank")

    def row_total(self, value: float) -> float:
        """Returns a sum over rows, of all ranks."""
        if self.place.comm is None:
            return value
        return float(self.place.comm.allreduce(np.array([value]), order="rank")[0])


def placed(program: LinearProgram | Scaled, at: Place) -> Placed:
    """Returns the program's vectors and this rank's rows, put there."""
    rows = at.range(program.matrix.shape[0])
    mine = csr_array(program.matrix[rows])
    return Placed(
        at,
        at.array(mine),
        at.array(csr_array(mine.T)),
        at.array(program.cost),
        at.array(program.row_lower[rows]),
        at.array(program.row_upper[rows]),
        at.array(program.lower),
        at.array(program.upper),
    )
