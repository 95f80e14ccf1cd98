"""Run a program on ranks: the backends by name, and what a run gives back."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from armillary.comm.algorithms import Algorithm, chosen
from armillary.comm.program import found
from armillary.comm.result import Ran, Result
from armillary.errors import InputError, unknown

#: The most ranks of any backend, and of those that give each rank a thread or a process.
_MOST_RANKS = 1_000_000
_MOST_REAL_RANKS = 4096


@dataclass(frozen=True)
class _Backend:
    #: `module:function` that runs it; None where it is not built yet.
    runner: str | None
    #: Modules that it needs, and the extra that brings them.
    needs: tuple[str, ...] = ()
    extra: str = ""
    most: int = _MOST_REAL_RANKS
    #: Options of `run` that it takes.
    takes: tuple[str, ...] = ()
    #: It starts processes, which find the program by its name.
    by_name: bool = False


_VIRTUAL_OPTIONS = (
    "cluster",
    "placement",
    "model",
    "progress",
    "payload",
    "timeline",
    "constants",
    "shm",
    "collectives",
    "speed_ratio",
    "shuffle",
)

_BACKENDS = {
    "one": _Backend("armillary.comm.one:run_one", most=1),
    "threads": _Backend("armillary.comm.threads:run_threads"),
    "mpi": _Backend("armillary.comm.mpi_start:run_mpi", ("mpi4py",), "mpi", takes=("library", "timeout"), by_name=True),
    "nccl": _Backend("armillary.comm.torch_start:run_nccl", ("torch",), "learn", takes=("timeout",), by_name=True),
    "gloo": _Backend("armillary.comm.torch_start:run_gloo", ("torch",), "learn", takes=("timeout",), by_name=True),
    "virtual": _Backend("armillary.comm.virtual.start:run_virtual", most=_MOST_RANKS, takes=_VIRTUAL_OPTIONS),
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
    collectives: Mapping[str, str | Algorithm] | str | None = None,
    named: Mapping[str, Any] | None = None,
    **options: Any,
) -> Result:
    """Run `program(comm, *args, **named)` on `ranks` ranks and give what each returned.

    `program` is a function, or `"module:function"`. `collectives` chooses algorithms (`{"allreduce": "ring"}`). `options` are the
    backend's own: `library=` and `timeout=` (seconds) on `mpi`; on `virtual`, which runs in simulated time, `cluster=`, `placement=`,
    `model=`, `progress=`, `payload=`, `timeline=`, `constants=`, `shm=`, `speed_ratio=` and `collectives="modelled"`
    (docs/virtual-ranks.md). On `mpi` the program must be importable by name, and arguments and
    results are numbers, text, arrays, and lists, tuples and dictionaries of these. Inside a job that mpiexec started, `mpi` uses the
    ranks of the job.

    Raises `RankFailed` when a rank fails, `Deadlock` when all ranks wait for each other (threads, virtual), `InputError` for what cannot
    be run.
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
    if isinstance(collectives, str):
        options, collectives = {**options, "collectives": collectives}, None
    choice = dict(collectives or {})
    chosen(choice)
    assert entry.runner is not None
    module, _, name = entry.runner.partition(":")
    runner = getattr(importlib.import_module(module), name)
    for option in options:
        if option not in entry.takes:
            raise unknown(f"option of backend {backend}", option, entry.takes)
    body = found(program) if isinstance(program, str) and not entry.by_name else program
    start = time.perf_counter()
    ran: Ran = runner(body, args, dict(named or {}), ranks, seed, choice, **options)
    seconds = time.perf_counter() - start if ran.seconds is None else ran.seconds
    return Result(ran.values, ran.counters, seconds, ran.unreceived, backend, ran.timeline)


def _lacks(name: str) -> str:
    backend = _BACKENDS[name]
    for module in backend.needs:
        if find_spec(module) is None:
            return f"{module} is not installed; pip install 'armillary[{backend.extra}]'"
    return "" if backend.runner else "it is not built yet"
