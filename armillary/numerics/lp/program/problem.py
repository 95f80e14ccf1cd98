"""A linear program, and what solving one gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.sparse import coo_array, csr_array, sparray, vstack

from armillary.errors import InputError

from ..first_order.sums import dot

Array = np.ndarray[Any, Any]
Status = Literal["optimal", "infeasible", "unbounded", "noise floor", "limit"]


@dataclass(frozen=True)
class LinearProgram:
    """Minimise cost·x + constant over row_lower ≤ matrix·x ≤ row_upper and lower ≤ x ≤ upper.

    `matrix` is m×n, the rest vectors of m and n numbers; bounds may be infinite. `sense` is −1 where the program was to be maximised:
    `cost` and `constant` are then negated, and objectives are given in the program's own sense.
    """

    cost: Array
    matrix: csr_array
    row_lower: Array
    row_upper: Array
    lower: Array
    upper: Array
    constant: float = 0.0
    sense: int = 1
    name: str = ""
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    #: What the reader did that one might not expect: relaxed integers, dropped rows.
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        m, n = self.matrix.shape
        for what, vector, size in (
            ("cost", self.cost, n),
            ("row_lower", self.row_lower, m),
            ("row_upper", self.row_upper, m),
            ("lower", self.lower, n),
            ("upper", self.upper, n),
        ):
            if vector.shape != (size,):
                raise InputError(f"{what}: found the shape {vector.shape}; expected ({size},) for a matrix of {m}×{n}")
            if np.isnan(vector).any():
                raise InputError(f"{what}: found NaN at {int(np.isnan(vector).argmax())}; expected numbers")
        if not np.isfinite(self.cost).all() or not np.isfinite(self.matrix.data).all():
            raise InputError("found a cost or coefficient that is not finite; expected finite numbers")
        self._check_bounds("row", self.row_lower, self.row_upper, self.rows)
        self._check_bounds("column", self.lower, self.upper, self.columns)

    def _check_bounds(self, what: str, low: Array, high: Array, names: Sequence[str]) -> None:
        crossed = np.flatnonzero((low > high) | (low == np.inf) | (high == -np.inf))
        if len(crossed):
            i = int(crossed[0])
            name = names[i] if len(names) else i
            raise InputError(
                f"{what} {name}: found the bounds {low[i]:g} and {high[i]:g}; expected the lower one to be at most the upper one"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.matrix.shape

    @property
    def xp(self) -> Any:
        """The namespace of its vectors; with `activity`, `gradient` and `row_total` what `kkt` asks of a program anywhere."""
        return np

    def activity(self, x: Array) -> Array:
        """Returns matrix · x."""
        return self.matrix @ x

    def gradient(self, y: Array) -> Array:
        """Returns matrixᵀ · y."""
        return self.matrix.T @ y

    def row_total(self, value: float) -> float:
        """Returns a sum over rows, which are all here."""
        return value

    def objective(self, x: Array) -> float:
        """Returns the objective at x, in the program's own sense."""
        return self.sense * (dot(self.cost, x) + self.constant)


@dataclass(frozen=True)
class Solution:
    """What a solver gives: `x`, the rows' prices `y` and the columns' reduced costs (of minimising), and how good they are.

    `status` is "optimal" (to the tolerance), "infeasible" (with `ray`: prices that prove it), "unbounded" (with `ray`: a direction that
    proves it), "noise floor" (analog noise allows no more) or "limit". Residuals and the gap are relative, as `kkt` says. `history` has a
    row (iteration, primal residual, dual residual, gap) for each look.
    """

    status: Status
    x: Array
    y: Array
    objective: float
    iterations: int
    seconds: float
    primal_residual: float = np.inf
    dual_residual: float = np.inf
    gap: float = np.inf
    ray: Array | None = None
    history: Array = field(default_factory=lambda: np.empty((0, 4)))
    method: str = ""
    #: What analog hardware would take; see `armillary.crossbar`. None for digital methods.
    energy: Any = None


def from_linprog(c: Any, A_ub: Any = None, b_ub: Any = None, A_eq: Any = None, b_eq: Any = None, bounds: Any = (0, None)) -> LinearProgram:
    """Returns the program that `scipy.optimize.linprog` means by these arguments."""
    cost = np.atleast_1d(np.asarray(c, np.float64))
    n = len(cost)
    blocks: list[Any] = []
    low: list[Array] = []
    high: list[Array] = []
    for matrix, right, equal in ((A_ub, b_ub, False), (A_eq, b_eq, True)):
        if (matrix is None) != (right is None):
            raise InputError("found a matrix without its right-hand side, or the other way; expected both or neither")
        if matrix is None:
            continue
        given: Any = matrix if isinstance(matrix, sparray) else np.atleast_2d(np.asarray(matrix, np.float64))
        block = csr_array(given)
        values = np.atleast_1d(np.asarray(right, np.float64))
        if block.shape != (len(values), n):
            raise InputError(f"found a matrix of {block.shape} for {len(values)} right-hand sides and {n} costs; expected them to agree")
        blocks.append(block)
        low.append(values if equal else np.full(len(values), -np.inf))
        high.append(values)
    if not blocks:
        blocks, low, high = [csr_array((0, n))], [np.empty(0)], [np.empty(0)]
    lower, upper = _bounds(bounds, n)
    return LinearProgram(cost, csr_array(vstack(blocks, format="csr")), np.concatenate(low), np.concatenate(high), lower, upper)


def _bounds(bounds: Any, n: int) -> tuple[Array, Array]:
    pairs = [bounds] * n if np.ndim(bounds) <= 1 and len(bounds) == 2 and not isinstance(bounds[0], Sequence) else list(bounds)
    if len(pairs) == 1 and n > 1:
        pairs = pairs * n
    if len(pairs) != n:
        raise InputError(f"bounds: found {len(pairs)} pairs; expected one, or one for each of {n} variables")
    low = np.array([-np.inf if pair[0] is None else float(pair[0]) for pair in pairs])
    high = np.array([np.inf if pair[1] is None else float(pair[1]) for pair in pairs])
    return low, high


def from_entries(rows: Sequence[int], columns: Sequence[int], values: Sequence[float], shape: tuple[int, int]) -> csr_array:
    """Makes a matrix from its entries; equal places are added up and zeros dropped."""
    matrix = csr_array(
        coo_array((np.asarray(values, np.float64), (np.asarray(rows, np.int64), np.asarray(columns, np.int64))), shape=shape)
    )
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix
