"""Runs in pairs: a clean one, and one with the same inputs into which a fault is put.

Because both have the same inputs, a difference between them is due to the fault and to noise. A clean run has a sham fault at the same
window, and only windows from there on are judged, in both: otherwise late windows would be corrupted ones, and a detector that reads the
clock would look good. Faults that change nothing, and those that end in infinities, are drawn again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from armillary.errors import InputError

from ..faults.inject import strike
from ..faults.propagation import Study, study
from ..machine.noise import measured
from ..machine.processor import COUNTERS, Processor
from ..matrices.csr import Csr, in_range
from ..solvers.kinds import SOLVERS
from ..solvers.solver import MOST_WINDOWS, Solver
from .checks import Checks

Array = np.ndarray[Any, Any]
#: Times that a fault is drawn until one is silent and not lost.
DRAWS = 6
#: A result that differs by more than this, relatively, is a harm.
HARM = 1e-6
#: Where a fault may come, as a share of the clean run's windows.
LATEST = 0.7
TARGETS = ("values", "vector", "columns", "pointers")


@dataclass(frozen=True)
class Faults:
    """How faults are drawn; fraction and sigma are those of `noise`."""

    kind: str = "spread"
    targets: tuple[str, ...] = TARGETS
    fraction: float = 0.0
    sigma: float = 0.0
    #: Flips that the study of propagation follows.
    flips: int = 60


@dataclass(frozen=True)
class Caches:
    """Bytes of the modelled caches."""

    l1: int = 32 << 10
    l2: int = 512 << 10
    llc: int = 2 << 20

    def core(self, counting: bool = True) -> Processor:
        """A fresh core."""
        return Processor(self.l1, self.l2, self.llc, counting=counting)


@dataclass(eq=False)
class Runs:
    """All windows of all runs, one after another: `counters` [windows, counters] with noise, `exact` without, `checks` [windows, 5].

    By run: its first window and, one further, its end; the pair; the window of the fault; whether it is corrupted; whether its result is
    harmed, or differs at all; the target; the origin, which is one matrix under one solver, with `names`.
    """

    counters: Array
    exact: Array
    checks: Array
    first: Array
    pair: Array
    start: Array
    corrupted: Array
    harmed: Array
    differs: Array
    target: Array
    origin: Array
    names: tuple[str, ...]
    #: Counters' names.
    columns: tuple[str, ...] = COUNTERS
    #: Pairs without a fault that was silent and not lost.
    lost: int = 0
    iterations: int = 1
    facts: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.pair)

    @property
    def run_of(self) -> Array:
        """The run of every window."""
        return np.repeat(np.arange(len(self)), np.diff(self.first))

    @property
    def index(self) -> Array:
        """The place of every window within its run."""
        return np.arange(len(self.counters)) - self.first[self.run_of]


@dataclass
class _Record:
    exact: Array
    checks: Array
    result: Array
    fault: bool = True


def one_run(solver: Solver, fault: tuple[int, Any] | None = None, events: tuple[str, ...] = ()) -> _Record | None:
    """Runs to the end; `fault` is (window, what to do to the solver). None if the run is not silent: infinite, or out of range.

    With events, windows hold what `perf_event_open` counts of them on this machine, the checks' work left out, and not the modelled core's.
    """
    checks = Checks(solver)
    solver.watch = checks if solver.multiplies and not events else None
    reader = _Events(events) if events else solver.core
    try:
        return _run(solver, checks, fault, reader)
    finally:
        if isinstance(reader, _Events):
            reader.close()


class _Events:
    """Counters of this thread in the order of their names; what did not run counts as 0."""

    def __init__(self, names: tuple[str, ...]) -> None:
        from ..counters.perf import Perf

        self.names, self._perf = names, Perf(names)

    def read(self) -> Array:
        """The counts since the last reading."""
        found = self._perf.sample()
        return np.array([found.get(name, 0.0) for name in self.names])

    def close(self) -> None:
        """Gives the descriptors back."""
        self._perf.close()


def _run(solver: Solver, checks: Checks, fault: tuple[int, Any] | None, reader: Processor | _Events) -> _Record | None:
    reader.read()
    exact: list[Array] = []
    rows: list[Array] = []
    more = True
    while more and len(exact) < MOST_WINDOWS:
        if fault is not None and len(exact) == fault[0] and not (fault[1](solver) and in_range(solver.columns, solver.pointers)):
            return None
        with np.errstate(all="ignore"):
            more = solver.advance()
        exact.append(reader.read())
        rows.append(checks.row(not more))
        if isinstance(reader, _Events):
            reader.read()
    result = solver.result().copy()
    if not np.isfinite(result).all() or np.abs(result).max() > 1e200:
        return None
    return _Record(np.array(exact), np.array(rows), result)


def pairs_of(
    name: str, matrix: Csr, count: int, faults: Faults, caches: Caches, rng: np.random.Generator, *, same: bool = False,
    events: tuple[str, ...] = (),
) -> Runs:  # fmt: skip
    """`count` pairs of runs of one solver on one matrix. With `same`, all runs have the same inputs.

    With events, counters are those of this machine (measured); products are not checked then, so that the check is not counted.
    """
    kind = SOLVERS[name]
    if kind.symmetric and not matrix.symmetric():
        raise InputError("found a matrix that is not symmetric with a positive diagonal; expected one, or bicgstab", where=name)
    seeds = [np.random.SeedSequence(int(word)) for word in rng.integers(1 << 62, size=3 * count + 1)]
    held = _study(name, matrix, faults, caches, seeds[-1])
    windows: list[Array] = []
    exact: list[Array] = []
    checks: list[Array] = []
    facts: list[tuple[int, int, bool, bool, bool, str]] = []
    lost = 0
    for pair in range(count):
        inputs, draws, noise = (seeds[3 * pair + i] for i in range(3))
        inputs = seeds[0] if same else inputs
        make = functools.partial(_made, kind, matrix, inputs, caches, not events)
        clean = one_run(make(), events=events)
        if clean is None or (kind.control == "iterations" and len(clean.exact) >= MOST_WINDOWS):
            raise InputError(f"does not end within {MOST_WINDOWS * kind.every} iterations on this matrix", where=name)
        start, target, bad = _corrupted(make, faults, held, _rng(draws), clean, events)
        if bad is None:
            lost += 1
            continue
        gap = float(np.abs(bad.result - clean.result).max()), float(np.abs(clean.result[np.abs(clean.result) < 1e29]).max(initial=1e-300))
        for record, is_bad in ((clean, False), (bad, True)):
            facts.append((pair, start, is_bad, is_bad and gap[0] > HARM * gap[1], is_bad and gap[0] > 0, target))
            exact.append(record.exact)
            checks.append(record.checks)
        noises = _rng(noise)
        windows += [one.exact if events else measured(one.exact, noises) for one in (clean, bad)]
    if len(facts) < 4:
        raise InputError(f"found {len(facts) // 2} pairs with a fault that was silent and not lost; expected at least 2", where=name)
    columns = list(zip(*facts))
    first = np.concatenate([[0], np.cumsum([len(one) for one in windows])])
    return Runs(
        np.concatenate(windows), np.concatenate(exact), np.concatenate(checks), first, np.array(columns[0]), np.array(columns[1]),
        np.array(columns[2]), np.array(columns[3]), np.array(columns[4]), np.array(columns[5]), np.zeros(len(facts), np.int64), (name,),
        columns=events or COUNTERS, lost=lost, iterations=kind.every,
    )  # fmt: skip


def _made(kind: type[Solver], matrix: Csr, inputs: np.random.SeedSequence, caches: Caches, counting: bool) -> Solver:
    return kind(matrix, _rng(inputs), caches.core(counting))


def _rng(seed: np.random.SeedSequence) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(seed))


def _study(name: str, matrix: Csr, faults: Faults, caches: Caches, seed: np.random.SeedSequence) -> Study | None:
    if faults.kind != "spread":
        return None
    return study(lambda: SOLVERS[name](matrix, _rng(seed), caches.core(False)), _rng(seed.spawn(1)[0]), faults.flips)


def _corrupted(
    make: Callable[[], Solver], faults: Faults, held: Study | None, rng: np.random.Generator, clean: _Record, events: tuple[str, ...]
) -> tuple[int, str, _Record | None]:  # fmt: skip
    """(window, target, run) of a fault that is silent and changes something; no run if none was found."""
    latest = max(1, int(LATEST * len(clean.exact)))
    start, target = 1, ""
    # The target is drawn once, so that targets which are lost more often do not become rare.
    names = [one for one in faults.targets if one != "vector" or make().vectors()]
    target = names[int(rng.integers(len(names)))]
    for _ in range(DRAWS):
        start = int(rng.integers(1, latest + 1))
        found = one_run(make(), (start, lambda solver: _hit(solver, target, faults, held, rng)), events)
        if found is None:
            continue
        # Counters of a real machine are never the same twice.
        same = len(found.exact) == len(clean.exact) and (bool(events) or np.array_equal(found.exact, clean.exact))
        if not same or not np.array_equal(found.result, clean.result):
            return start, target, found
    return start, target, None


def _hit(solver: Solver, target: str, faults: Faults, held: Study | None, rng: np.random.Generator) -> bool:
    arrays = solver.arrays
    names = [name for name in arrays if name.partition(".")[0] == target]
    array = arrays[names[int(rng.integers(len(names)))]]
    limit = solver.rows if target == "columns" else len(solver.values) + 1
    return strike(array, faults.kind, rng, study=held, fraction=faults.fraction, sigma=faults.sigma, limit=limit)


def together(runs: list[Runs]) -> Runs:
    """Runs of several origins, each with its own name; pairs keep apart."""
    firsts, pairs, origins, at, most = [np.zeros(1, np.int64)], [], [], 0, 0
    for number, one in enumerate(runs):
        firsts.append(one.first[1:] + at)
        pairs.append(one.pair + most)
        origins.append(np.full(len(one), number))
        at, most = at + len(one.counters), most + int(one.pair.max()) + 1
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(one, name) for one in runs])
        for name in ("counters", "exact", "checks", "start", "corrupted", "harmed", "differs", "target")
    }
    return Runs(
        first=np.concatenate(firsts), pair=np.concatenate(pairs), origin=np.concatenate(origins),
        names=tuple(one.names[0] for one in runs), lost=sum(one.lost for one in runs), iterations=runs[-1].iterations, **joined,
    )  # fmt: skip
