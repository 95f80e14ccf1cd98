"""Run a program on ranks: the backends by name, and what a run gives back."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from armillary.comm.algorithms import Algorithm, chosen
from armillary.comm.counters import Counters
from armillary.comm.program import found
from armillary.errors import InputError, unknown

#: The most ranks of any backend, and of those that give each rank a thread or a process.
_MOST_RANKS = 1_000_000
_MOST_REAL_RANKS = 4096


@dataclass(frozen=True)
class Result:
    """What a run gives: `values[i]` is what rank i returned, `counters[i]` what it sent, by phase."""

    values: list[Any]
    counters: list[Mapping[str, Counters]]
    #: Wall seconds of the whole run; simulated seconds on virtual ranks.
    seconds: float
    #: Messages that nobody received, in words.
    unreceived: list[str]
    backend: str

    def __getitem__(self, rank: int) -> Any:
        return self.values[rank]

    def __len__(self) -> int:
        return len(self.values)

    def total(self, what: str, phase: str | None = None) -> float:
        """One of the counters, summed over the ranks, of one phase or of all."""
        if what not in Counters.__slots__:
            raise unknown("counter", what, Counters.__slots__)
        phases = [c for rank in self.counters for name, c in rank.items() if phase is None or name == phase]
        return sum(getattr(c, what) for c in phases)


@dataclass(frozen=True)
class _Backend:
    #: `module:function` that runs it; None where it is not built yet.
    runner: str | None
    #: Modules that it needs, and the extra that brings them.
    needs: tuple[str, ...] = ()
    extra: str = ""
    most: int = _MOST_REAL_RANKS


_BACKENDS = {
    "one": _Backend("armillary.comm.one:run_one", most=1),
    "threads": _Backend("armillary.comm.threads:run_threads"),
    "mpi": _Backend("armillary.comm.mpi_start:run_mpi", ("mpi4py",), "mpi"),
    "nccl": _Backend(None, ("cupy",), "gpu"),
    "gloo": _Backend(None, ("torch",), "learn"),
    "virtual": _Backend(None, most=_MOST_RANKS),
}


def backends() -> dict[str, str]:
    """Every backend, and what it lacks here: "" where it can be used."""
    return {name: _lacks(name) for name in _BACKENDS}


def run(
    program: Callable[..., Any] | str,
    *args: Any,
    ranks: int = 1,
    backend: str = "threads",
    seed: int = 0,
    collectives: Mapping[str, str | Algorithm] | None = None,
    named: Mapping[str, Any] | None = None,
    **options: Any,
) -> Result:
    """Run `program(comm, *args, **named)` on `ranks` ranks and give what each returned.

    `program` is a function, or `"module:function"`. `collectives` chooses algorithms (`{"allreduce": "ring"}`). `options` are the
    backend's own: `library=` and `timeout=` (seconds) on `mpi`. On `mpi` the program must be importable by name, and arguments and
    results are numbers, text, arrays, and lists, tuples and dictionaries of these. Inside a job that mpiexec started, `mpi` uses the
    ranks of the job.

    Raises `RankFailed` when a rank fails, `Deadlock` when all ranks wait for each other (threads), `InputError` for what cannot be run.
    """
    if backend not in _BACKENDS:
        raise unknown("backend", str(backend), _BACKENDS)
    lacks = _lacks(backend)
    if lacks:
        raise InputError(f"backend {backend}: {lacks}")
    if not isinstance(ranks, int) or not 1 <= ranks <= _MOST_RANKS:
        raise InputError(f"ranks: found {ranks!r}; expected 1 to {_MOST_RANKS}")
    entry = _BACKENDS[backend]
    if ranks > entry.most:
        raise InputError(f"ranks: found {ranks}; expected at most {entry.most} on backend {backend}")
    choice = dict(collectives or {})
    chosen(choice)
    assert entry.runner is not None
    module, _, name = entry.runner.partition(":")
    runner = getattr(importlib.import_module(module), name)
    takes = ("library", "timeout") if backend == "mpi" else ()
    for option in options:
        if option not in takes:
            raise unknown(f"option of backend {backend}", option, takes)
    body = program if backend == "mpi" else found(program) if isinstance(program, str) else program
    start = time.perf_counter()
    values, counters, unreceived = runner(body, args, dict(named or {}), ranks, seed, choice, **options)
    return Result(values, counters, time.perf_counter() - start, unreceived, backend)


def _lacks(name: str) -> str:
    backend = _BACKENDS[name]
    for module in backend.needs:
        if find_spec(module) is None:
            return f"{module} is not installed; pip install 'armillary[{backend.extra}]'"
    return "" if backend.runner else "it is not built yet"
