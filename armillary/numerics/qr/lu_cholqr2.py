"""LU-CholeskyQR2 applies CholeskyQR to the L of a pivoted LU, which is well conditioned almost regardless of A, and adds one more pass.

CholeskyQR squares the condition of what it is given. With A = Pᵀ L U it is given L: LᴴL = SᴴS, Q = L S⁻¹, R = S U; a second CholeskyQR
brings Q to roundoff. U comes from one reduction tree, so that there are a tree and two allreduces in all, and every flop on rows is in a
product or a triangular solve.

Our design, where the paper's text is not public: tournament pivoting. Every rank hands on the n rows of A that partial pivoting picks from
its block, leaf by leaf; two ranks' candidates meet in an LU of 2n×n. L = A U⁻¹ by substitution, and nothing of A moves but these rows.
Two more choices of pivots: `local` stacks the ranks' U by an allgather, `none` takes n random rows. What a poor choice does shows in the
diagonal of the Gram matrix that is formed anyway; then rows are added where a device took a sample, or TSQR takes over.

Parallel tall-and-skinny QR factorization based on LU-CholeskyQR algorithm, IEEE CLUSTER 2025; the base method: Terao, Ozaki, Ogita:
LU-Cholesky QR algorithms for thin QR decomposition, Parallel Computing 92, 2020.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from armillary import arrays
from armillary.arena import Claim, Gain, Kind, Level
from armillary.errors import InputError, unknown
from armillary.parameters import parameter

from .factors.cholesky_passes import cholesky_passes
from .factors.implicit import ImplicitQ
from .factors.method import Factors, Info, Method, Source, cuda_passes, finished, in_range, scales_of
from .factors.triangles import Array, Breakdown, conditioned, pivot_order, unit, upper_cholesky, upper_factor
from .ranks import rows
from .ranks.team import LU_EFFICIENCY, Team
from .tsqr import factor_by_tree

#: How often rows are added to a sample whose L grows, and what mean size of a column's entries asks for it.
_ROUNDS, _LARGE = 5, 100.0
#: Most that may cancel in S·U: what roundoff of the LU is multiplied by in A − QR. Random and graded matrices stay below 25.
_CANCELLED = 100.0


@dataclass(frozen=True)
class LuCholQr2(Method):
    """CholeskyQR of the L of a pivoted LU, twice."""

    name = "lu-cholqr2"
    passes: ClassVar[int] = 2

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "stable", by=Level(at_least=1.0), on=Kind("accuracy"),
            says="numerically stable even for ill-conditioned problems (‖I−QᵀQ‖ and ‖A−QR‖/‖A‖ are at most 1e-14·√n on every case)",
        ),
        Claim(
            "seconds", over="tsqr", by=Gain(ratio=(1.3, None)), on=Kind("speed"), part=1.0,
            says="faster than conventional methods, here TSQR", why="the abstract says faster and gives no figure; any gain counts in part",
        ),
        Claim(
            "seconds", over="scholqr3", by=Gain(ratio=(1.0, None)), on=Kind("speed", "ill-conditioned"),
            says="faster than conventional methods, here than shifted CholeskyQR3, which must handle ill-conditioned matrices too",
        ),
        Claim(
            "simulated_seconds", over="householder", by=Gain(ratio=(5.0, None)), on=Kind("simulated", "p1024"),
            says="faster than conventional methods on many nodes, here than column-wise Householder on 1,024 ranks",
        ),
        Claim(
            "simulated_seconds", over="tsqr", by=Gain(ratio=(1.0, None)), on=Kind("simulated", "p1024"),
            says="faster than conventional methods on many nodes, here than TSQR on 1,024 ranks",
        ),
    )  # fmt: skip

    #: Text with choices rather than a Literal, because "none" on a command line would mean nothing.
    pivoting: str = parameter(
        "tournament",
        "which rows make U: the winners along a tree, those among the U of all ranks, or n random ones",
        choices=("tournament", "local", "none"),
    )
    fallback: Literal["tsqr", "raise"] = parameter("tsqr", "what to do where L grows or Cholesky fails")
    rank_deficient: Literal["raise", "shift"] = parameter(
        "raise", "whether a zero pivot is a breakdown, or gets u·‖A‖ added (one more word in every row of the tree)"
    )
    normalise: bool = parameter(True, "whether columns are first scaled by powers of two, which is exact and undone in R")
    q: Literal["explicit", "implicit"] = parameter("explicit", "whether Q is an array, or an operator that keeps L")

    @property
    def scales(self) -> bool:  # type: ignore[override]
        """Whether columns are scaled first."""
        return self.normalise

    def validate(self) -> None:
        """Refuses the shift without the tournament, which alone knows to whom the row of the pivot belongs."""
        if self.pivoting not in ("tournament", "local", "none"):
            raise unknown("pivoting", self.pivoting, ("tournament", "local", "none"))
        if self.rank_deficient == "shift" and self.pivoting != "tournament":
            raise InputError(f'rank_deficient = "shift" with pivoting "{self.pivoting}"; expected pivoting "tournament"')

    def factor(self, team: Team, source: Source) -> Factors:
        self.validate()
        growth = 0.0
        try:
            x, u, gram, shifted = self._lower(team, source)
            n = source.columns()
            growth = math.sqrt(max(0.0, float(np.diagonal(gram).real.max())))
            s = _bounded(gram, u)
            team.work(n**3 / 3)
            info = Info(self.name, growth=growth, condition=conditioned(u), shifted=shifted)
            if self.q == "implicit":
                return self._implicit(team, x, s, u, info)
            if self.passes == 1:
                team.divide(x, s)
                return Factors(x, s @ u, info)
            (second,) = cholesky_passes(team, x, team.divide_and_gram(x, s), 1)
            return Factors(x, (second @ s) @ u, info)
        except Breakdown as breakdown:
            # A column without a pivot stays a breakdown, because no QR would have full rank.
            if self.fallback == "raise" or isinstance(breakdown, ZeroPivot):
                raise
            return factor_by_tree(team, source, fallback=str(breakdown), growth=growth)

    def on_device(self, a: arrays.Array) -> Factors | None:
        """As `factor`, in the same steps, for a block whose first sample serves: where it does not, `factor` adds rows or falls back.

        Columns are not scaled there, because powers of two change no digit; the range of the numbers is checked instead.
        """
        if self.pivoting != "tournament" or self.q != "explicit" or self.passes != 2:
            return None
        passes = cuda_passes(a, pivoted=True)
        if passes is None:
            return None
        upper, lower = passes.triangles()
        u, s, size = upper.matrix, lower.matrix, float(lower.diagonal.max())
        trusted = upper.usable(rows.INVERSE_BELOW) and lower.usable(rows.INVERSE_BELOW)
        if not trusted or not in_range(u) or not size <= _LARGE**2 * a.shape[0] or size > 1 / unit(u.dtype):
            return None
        scaled = u * scales_of(u) if self.normalise else u
        try:
            _sound(s, scaled)
        except Breakdown:
            return None
        return finished(passes, s @ u, Info(self.name, growth=math.sqrt(size), condition=conditioned(scaled)))

    def _lower(self, team: Team, source: Source) -> tuple[arrays.Array, Array, Array, tuple[int, ...]]:
        """Returns L in a fresh block, U, LᴴL and the columns that were shifted."""
        # A device's block is scaled while it is divided, so that it is read and written once less.
        later = source.factors if arrays.on_accelerator(source.given) else None
        x = source.copy() if later is None else source.given
        mine = rows.top_rows(x, later) if self.pivoting != "none" else np.empty(0, np.int64)
        if self.pivoting != "none":
            team.on_rows(x, x.shape[1] ** 2, 1, LU_EFFICIENCY)
        for attempt in range(_ROUNDS):
            u, shifted, shifts = self._upper(team, x, mine, later)
            if later is not None and not shifts:
                x, gram = team.quotient_and_gram(x, later, u)
            else:
                x = x if later is None else source.copy()
                for row, column, value in shifts:
                    x[row, column] += value
                gram = team.divide_and_gram(x, u)
            size = float(np.diagonal(gram).real.max())
            if later is None or attempt == _ROUNDS - 1 or size <= _LARGE**2 * team.rows:
                break
            added = rows.largest_rows(x)
            x = source.given
            mine = rows.winners(x, [np.union1d(mine, added)], later)
        return x, u, gram, shifted

    def _upper(
        self, team: Team, x: arrays.Array, mine: Array, later: Array | None
    ) -> tuple[Array, tuple[int, ...], list[tuple[int, int, Any]]]:
        """Returns U with a positive diagonal, the columns that were shifted, and what this rank adds to its rows for that: (row, column,
        value).
        """
        n = x.shape[1]
        if self.pivoting == "tournament":
            return self._tournament(team, x, mine, later)
        if self.pivoting == "local":
            own = np.zeros((n, n), rows.host_type(x))
            if len(mine):
                local, _ = upper_factor(rows.take(x, mine, later))
                own[: local.shape[0]] = local
            stacked = team.gathered(own).reshape(-1, n)
            team.work(stacked.shape[0] * n**2)
        else:
            stacked = team.total(_sample(team, x, later))
            team.work(2 / 3 * n**3)
        u, _ = upper_factor(stacked)
        _zero_pivot(u)
        return u, (), []

    def _tournament(
        self, team: Team, x: arrays.Array, mine: Array, later: Array | None
    ) -> tuple[Array, tuple[int, ...], list[tuple[int, int, Any]]]:
        n, shift = x.shape[1], self.rank_deficient == "shift"

        def combine(own: Any, theirs: Any) -> Any:
            team.work(5 / 3 * n**3 / LU_EFFICIENCY)
            if not shift:
                both = np.concatenate([own, theirs])
                return both[pivot_order(both)]
            both, names = (np.concatenate(pair) for pair in zip(own, theirs))
            order = pivot_order(both)
            return both[order], names[order]

        candidates = rows.take(x, mine, later)
        won = team.up((candidates, mine + team.offset) if shift else candidates, combine)
        value: Any = None
        if team.rank == 0:
            u, order = upper_factor(won[0] if shift else won)
            team.work(2 / 3 * n**3)
            value = (u, won[1][order]) if shift else u
        value = team.down(value, lambda whole: (whole, whole))
        if not shift:
            _zero_pivot(value)
            return value, (), []
        return _shifted(team, np.array(value[0]), value[1], x.shape[0])

    def _implicit(self, team: Team, x: arrays.Array, s: Array, u: Array, info: Info) -> Factors:
        if self.passes == 1:
            return Factors(ImplicitQ(x, s, team), s @ u, info)
        n = x.shape[1]
        total = np.zeros((n, n), s.dtype)
        for piece in rows.pieces(x):
            copy = arrays.namespace(piece).asarray(piece, copy=True)
            total += rows.divide(copy, s, with_gram=True)
        team.on_rows(x, 2 * n * n, 1)
        second = upper_cholesky(team.whole(total))
        both = second @ s
        return Factors(ImplicitQ(x, both, team), both @ u, info)


class ZeroPivot(Breakdown):
    """A pivot that is exactly zero: this column depends on those before it."""


def _zero_pivot(u: Array) -> None:
    zeros = np.flatnonzero(np.diagonal(u) == 0)
    if len(zeros):
        raise ZeroPivot("its pivot is zero; it depends on the columns before it", int(zeros[0]))


def _shifted(team: Team, u: Array, owners: Array, count: int) -> tuple[Array, tuple[int, ...], list[tuple[int, int, Any]]]:
    zeros = np.flatnonzero(np.diagonal(u) == 0)
    value = unit(u.dtype) * max(float(np.linalg.norm(u)), float(np.finfo(u.dtype).tiny))
    u[zeros, zeros] = value
    mine = [(int(owners[j]) - team.offset, int(j), value) for j in zeros if 0 <= owners[j] - team.offset < count]
    return u, tuple(int(j) for j in zeros), mine


def _bounded(gram: Array, upper: Array) -> Array:
    """Returns S, or `Breakdown` where L has grown beyond 1/√u, is conditioned too badly for a second pass, or U has grown (Wilkinson's
    matrix).
    """
    u = unit(gram.dtype)
    diagonal = np.diagonal(gram).real
    if not np.isfinite(diagonal).all() or diagonal.max() > 1 / u:
        worst = int(np.argmax(np.where(np.isfinite(diagonal), diagonal, np.inf)))
        raise Breakdown("the entries of L grow beyond 1/√u", worst)
    s = upper_cholesky(gram)
    _sound(s, upper)
    return s


def _sound(s: Array, upper: Array) -> None:
    """Raises `Breakdown` where S is conditioned too badly for a second pass, or U has grown."""
    if conditioned(s) ** 2 * unit(s.dtype) > 0.1:
        raise Breakdown("L is too ill-conditioned for CholeskyQR")
    if np.linalg.norm(np.abs(s) @ np.abs(upper)) > _CANCELLED * np.linalg.norm(s @ upper):
        raise Breakdown("the entries of U grow: L·U would lose digits of A")


def _sample(team: Team, x: arrays.Array, factors: Array | None) -> Array:
    """Returns n random rows, each rank's share in its place and zeros elsewhere."""
    n, total = x.shape[1], team.rows
    chosen = np.sort(np.random.Generator(np.random.PCG64DXSM(n)).choice(total, n, replace=False))
    places = np.flatnonzero((chosen >= team.offset) & (chosen < team.offset + x.shape[0]))
    found = np.zeros((n, n), rows.host_type(x))
    found[places] = rows.take(x, chosen[places] - team.offset, factors)
    return found
