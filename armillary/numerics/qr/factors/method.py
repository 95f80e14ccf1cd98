"""The parts that every way to factor a tall matrix has in common: checks, scaling by powers of two, and counting."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary import arrays
from armillary.arena import Technique
from armillary.errors import InputError

from ..ranks import rows
from ..ranks.team import Team
from .triangles import Array, real_diagonal
from .triangles import Breakdown as Breakdown

if TYPE_CHECKING:
    from armillary.comm import Communicator

#: The least pivot with which a device works without scaling columns: its square is a normal number.
_LEAST = 2.0**-500
TYPES = ("float32", "float64", "complex64", "complex128")


@dataclass(frozen=True)
class Info:
    """What a factorisation took.

    `method` is the one that gave the answer, `fallback` why it is not the one asked for. `growth` bounds the entries of L: its largest
    column norm (0 where there is no L). `condition` is an estimate for the first triangle that was divided by. `shifted` are the columns
    whose zero pivot was shifted. `collectives`, `messages` and `bytes` are this rank's, without the check of the input (a scan of one word,
    allreduces of 5 and n). A tree counts as two collectives, up and down.
    """

    method: str
    fallback: str = ""
    growth: float = 0.0
    condition: float = 0.0
    shifted: tuple[int, ...] = ()
    collectives: int = 0
    messages: int = 0
    bytes: int = 0


@dataclass
class Source:
    """The block as it was given, and copies of it to work in, columns scaled by powers of two."""

    given: arrays.Array
    #: 2^-e for each column, in the type of the matrix.
    factors: Array

    def copy(self) -> arrays.Array:
        """Returns a fresh block to overwrite."""
        return rows.scaled(self.given, self.factors)

    def columns(self) -> int:
        """Returns n."""
        return int(self.given.shape[1])


@dataclass(frozen=True)
class Factors:
    """Q (the block of this rank, or an operator), R on the host, and what it took; R of the scaled matrix."""

    q: Any
    r: Array
    info: Info


class Method(Technique):
    """One way to factor. Subclasses are frozen dataclasses whose fields are the parameters."""

    #: Whether columns are scaled by powers of two first.
    scales = False
    name = ""

    def factor(self, team: Team, source: Source) -> Factors:
        """Returns Q and R of the matrix whose rows the ranks of the team share; R's diagonal is real and not negative."""
        raise NotImplementedError

    def on_device(self, a: arrays.Array) -> Factors | None:
        """Returns the factors of `a` itself where it lies on a CUDA device and the kernels there suffice, else None; R is not scaled."""
        return None

    def factorise(self, a: arrays.Array, comm: Communicator | None = None, weight: float = 1.0) -> tuple[Any, arrays.Array, Info]:
        """Returns Q of this rank's rows, R (n×n, the same on every rank) and what it took, of the block `a` (m_i×n) of a tall matrix.

        Kind, device and type are those of `a`. Raises `Breakdown` where the method cannot go on, `InputError` for what is no tall matrix.
        """
        team = Team(comm, weight)
        if comm is None:
            if (ready := self.on_device(a)) is not None:
                return ready.q, rows.like(real_diagonal(ready.r), a), ready.info
            with rows.dealt(a):
                source = _checked(team, a, self.scales)
                factors = self.factor(team, source)
            return factors.q, _unscaled(factors.r, source), factors.info
        with comm.phase("check"):
            source = _checked(team, a, self.scales)
        with comm.phase("factor") as counters:
            before = counters.collectives, counters.messages, counters.bytes
            team.on_rows(a, 0.0, 2)
            factors = self.factor(team, source)
            found = counters.collectives, counters.messages, counters.bytes
        spent = [now - then for now, then in zip(found, before)]
        info = Info(**{**vars(factors.info), "collectives": spent[0], "messages": spent[1], "bytes": spent[2]})
        return factors.q, _unscaled(factors.r, source), info


@functools.cache
def _kernels() -> Any:
    return import_module(".cuda_factors", __package__) if find_spec("triton") is not None else None


def cuda_passes(a: arrays.Array, pivoted: bool) -> Any:
    """Begins the passes over a block on a CUDA device (`cuda_factors.Passes`), or returns None where it is none that the kernels take."""
    if isinstance(a, np.ndarray) or arrays.kind_of(a) != "torch" or a.device.type != "cuda":
        return None
    kernels = _kernels()
    return kernels.Passes(a, pivoted) if kernels is not None and kernels.fits(a) else None


def finished(passes: Any, r: Array, info: Info) -> Factors | None:
    """Takes the last of the passes, after those that divided by r, and returns the factors, or None where they cannot be trusted."""
    last = passes.finish()
    return Factors(passes.q, last.matrix @ r, info) if last.usable(rows.INVERSE_BELOW) else None


def scales_of(r: Array) -> Array:
    """Returns the powers of two that bring the largest entry of each column of r to [½, 1)."""
    return np.ldexp(1.0, -np.frexp(np.abs(r).max(axis=0))[1])


def in_range(r: Array) -> bool:
    """Says whether a triangle is so far from the ends of the range that work without scaling loses no digit to it."""
    return bool(np.diagonal(r).min() >= _LEAST and np.abs(r).max() <= 1 / _LEAST)


def _unscaled(r: Array, source: Source) -> arrays.Array:
    return rows.like(real_diagonal(r / source.factors), source.given)


def _checked(team: Team, a: arrays.Array, scales: bool) -> Source:
    """Returns the block, known to be one of a tall matrix of finite numbers: every rank raises the same error."""
    dtype = str(a.dtype).removeprefix("torch.")
    code = TYPES.index(dtype) if dtype in TYPES else -1
    mine = np.array([*(a.shape if a.ndim == 2 else (0, -1)), code], np.int64)
    _agree(team, mine, a.ndim, dtype)
    n = int(mine[1])
    if n == 0:
        raise InputError("found no columns; expected at least one", where="a")
    if team.rows < n:
        raise InputError(f"found {team.rows} rows in all and {n} columns; expected at least as many rows", where="a")
    team.on_rows(a, n, 1)
    most = team.most(rows.magnitudes(a))
    if not np.isfinite(most).all():
        _refuse(team, a)
    real = np.dtype(rows.host_type(a)).type(0).real.dtype
    if not scales:
        return Source(a, np.ones(n, real))
    exponents = np.where(most > 0, np.frexp(most)[1], 0)
    limit = np.finfo(real).maxexp - 2
    return Source(a, np.ldexp(np.ones(n, real), -np.clip(exponents, -limit, limit)).astype(real))


def _agree(team: Team, mine: Array, dimensions: int, dtype: str) -> None:
    """Learns where this rank's rows begin and how many there are in all; every rank must have as many columns of the same type."""
    count, n, code = mine.tolist()
    team.offset = team.before(count)
    most = team.most(np.array([team.offset + count, n, -n, code, -code], np.int64)).tolist()
    team.rows = most[0]
    if most[1] == -most[2] >= 0 and most[3] == -most[4] >= 0:
        return
    # Something is wrong, and now everybody wants to know where.
    if dimensions != 2 and team.size == 1:
        raise InputError(f"found {dimensions} dimensions; expected 2", where="a")
    table = team.gathered(mine).tolist()
    for rank, (_, wide, known) in enumerate(table):
        where = f"rank {rank}" if team.size > 1 else "a"
        if wide < 0:
            raise InputError("found no matrix; expected 2 dimensions", where=where)
        if known < 0:
            raise InputError(f"found {dtype if rank == team.rank else 'another type'}; expected {', '.join(TYPES)}", where=where)
        if wide != table[0][1]:
            raise InputError(f"found {wide} columns; expected {table[0][1]} as on rank 0", where=where)
        if known != table[0][2]:
            raise InputError(f"found {TYPES[known]}; expected {TYPES[table[0][2]]} as on rank 0", where=where)


def _refuse(team: Team, a: arrays.Array) -> None:
    place = rows.first_not_finite(a)
    mine = np.array([-1, 0] if place is None else [team.offset + place[0], place[1]], np.int64)
    found = [where for where in team.gathered(mine).tolist() if where[0] >= 0]
    row, column = min(found)
    raise InputError(f"row {row}, column {column}: found an infinity or NaN; expected finite numbers", where="a")
