"""Run a program on ranks, on a backend that is chosen by name."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from armillary.comm.collectives.algorithms import Algorithm, chosen
from armillary.comm.jobs.program import found
from armillary.comm.result import Ran, Result
from armillary.comm.task import Task
from armillary.errors import InputError, unknown

#: The most ranks of any backend, and of those that give each rank a thread or a process.
_MOST_RANKS = 1_000_000
_MOST_REAL_RANKS = 4096


@dataclass(frozen=True)
class _Backend:
    #: `module:function` that runs a task.
    runner: str
    #: The package that it needs, how to call it in messages, and the extra that installs it.
    needs: tuple[str, str, str] | None = None
    #: `module:function` that says what else is missing on this machine.
    lacks: str = ""
    most: int = _MOST_REAL_RANKS
    #: The options of `run` that it takes.
    takes: tuple[str, ...] = ()
    #: Whether it starts processes, which find the program by its name.
    by_name: bool = False
    #: Whether collective algorithms can be chosen.
    chooses: bool = True


_MPI4PY = ("mpi4py", "mpi4py", "mpi")
_TORCH = ("torch", "PyTorch", "learn")
_VIRTUAL_OPTIONS = (
    "cluster", "placement", "model", "progress", "protocol", "payload", "timeline", "constants", "shm", "collectives", "speed_ratio",
    "shuffle",
)  # fmt: skip

_BACKENDS = {
    "one": _Backend("armillary.comm.one:run_one", most=1),
    "threads": _Backend("armillary.comm.threads.start:run_threads"),
    "mpi": _Backend(
        "armillary.comm.mpi.start:run_mpi",
        _MPI4PY,
        "armillary.comm.mpi.libraries:lacks_library",
        takes=("library", "timeout"),
        by_name=True,
    ),
    "nccl": _Backend(
        "armillary.comm.torch_distributed.start:run_nccl",
        _TORCH,
        "armillary.comm.torch_distributed.gpus:lacks_gpu",
        takes=("timeout",),
        by_name=True,
        chooses=False,
    ),
    "gloo": _Backend("armillary.comm.torch_distributed.start:run_gloo", _TORCH, takes=("timeout", "restarts"), by_name=True),
    "virtual": _Backend("armillary.comm.virtual.start:run_virtual", most=_MOST_RANKS, takes=_VIRTUAL_OPTIONS),
}


def backends() -> dict[str, str]:
    """Return for every backend what is missing to use it on this machine; "" if nothing is.

    A text says what to install, such as `mpi4py is not installed (pip install "armillary[mpi]")`, or what the machine lacks, such as a
    GPU. No library is loaded to find out, so a library that is broken shows only in a run.
    """
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
    """Run `program(comm, *args, **named)` on `ranks` ranks and return what each of them returned.

    `program` is a function, or `"module:function"`. `collectives` chooses algorithms (`{"allreduce": "ring"}`). `options` are the
    backend's own: `library=` and `timeout=` (seconds) on `mpi`, `timeout=` on `gloo` and `nccl`, and on `gloo` `restarts=`, the number of
    killed processes that others may replace (the ranks then go on with `comm.renewed()`). On `virtual`, which runs in simulated
    time, they are `cluster=`, `placement=`, `model=`, `progress=`, `protocol=`, `payload=`, `timeline=`, `constants=`, `shm=`,
    `speed_ratio=` and `collectives="modelled"` (docs/virtual-ranks.md).

    On `mpi`, `gloo` and `nccl` the program must be importable by name, and arguments and results are numbers, text, bytes, arrays, and
    lists, tuples and dictionaries of these. Inside a job that mpiexec started, `mpi` uses the ranks of the job.

    Raises `RankFailed` when a rank fails, `Deadlock` when all ranks wait for each other (on `one`, `threads` and `virtual`), and
    `InputError` when the arguments cannot be run.
    """
    if backend not in _BACKENDS:
        raise unknown("backend", str(backend), _BACKENDS)
    entry = _BACKENDS[backend]
    if collectives and not entry.chooses:
        raise InputError("collectives: found a choice; expected none on nccl, where every collective call is NCCL's own")
    lacks = _lacks(backend)
    if lacks:
        raise InputError(f"backend {backend}: {lacks}")
    if not isinstance(ranks, int) or not 1 <= ranks <= _MOST_RANKS:
        raise InputError(f"ranks: found {ranks!r}; expected 1 to {_MOST_RANKS}")
    if ranks > entry.most:
        raise InputError(f"ranks: found {ranks}; expected at most {entry.most} on backend {backend}")
    if isinstance(collectives, str):
        options, collectives = {**options, "collectives": collectives}, None
    choice = dict(collectives or {})
    chosen(choice)
    for option in options:
        if option not in entry.takes:
            raise unknown(f"option of backend {backend}", option, entry.takes)
    body = found(program) if isinstance(program, str) and not entry.by_name else program
    runner = _imported(entry.runner)
    start = time.perf_counter()
    ran: Ran = runner(Task(body, args, dict(named or {}), ranks, seed, choice), **options)
    seconds = time.perf_counter() - start if ran.seconds is None else ran.seconds
    return Result(ran.values, ran.counters, seconds, ran.unreceived, backend, ran.timeline)


def _lacks(name: str) -> str:
    backend = _BACKENDS[name]
    if backend.needs is not None:
        module, shown, extra = backend.needs
        if find_spec(module) is None:
            return f'{shown} is not installed (pip install "armillary[{extra}]")'
    return str(_imported(backend.lacks)()) if backend.lacks else ""


def _imported(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return function
