"""Several texts of one program, measured in turn by one set of ranks, so that what disturbs the machine disturbs all of them alike."""

from __future__ import annotations

import gc
import importlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.comm import MAX, Communicator, Result, libraries, run
from armillary.comm.jobs.program import found

#: Spread between rounds, as a share of the median, from which a measurement is noisy.
NOISY = 0.3
#: Seconds after which a job that measures is taken to hang.
_PATIENCE_S = 900.0


@dataclass(frozen=True)
class Measured:
    """Seconds of each round, of one text, and of its native twin in the same rounds (the same numbers for a twin itself)."""

    seconds: tuple[float, ...]
    native: tuple[float, ...]

    @property
    def median(self) -> float:
        """Seconds of one round."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Distance between the quartiles of the rounds, as a share of the median."""
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return (high - low) / self.median

    @property
    def noisy(self) -> bool:
        """Whether the rounds differ too much to hold a claim."""
        return self.spread > NOISY

    @property
    def overhead(self) -> float:
        """Per cent over the native twin: the median of the rounds' own ratios."""
        return 100 * (statistics.median(own / twin for own, twin in zip(self.seconds, self.native)) - 1)


def measure(
    texts: Sequence[str], program: str, options: Mapping[str, Any], backend: str, ranks: int, rounds: int, seed: int = 0
) -> dict[str, Measured]:
    """Each text of the program in turn, `rounds` times; the first is the native twin that overheads are over.

    `texts` are modules that hold a function named `program`; a program of the user is `module:function`, and `texts` are then ignored.
    All texts must give the same bits, or it is an error.
    """
    more: dict[str, Any] = {"timeout": _PATIENCE_S} if backend in ("mpi", "gloo", "nccl") else {}
    if backend == "mpi":
        more.update(first_library())
    shared = [_team(ranks)] if backend == "threads" else []
    names = [program] if ":" in program else [f"{text}:{program}" for text in texts]
    target: Any = "armillary.network.backends.measurement:alternate" if more else alternate
    result: Result = run(target, names, dict(options), rounds, *shared, ranks=ranks, backend=backend, seed=seed, **more)
    table = result[0]
    return {name: Measured(tuple(table[i]), tuple(table[0])) for i, name in enumerate(texts if ":" not in program else [program])}


def first_library() -> dict[str, str]:
    """The choice of an MPI library for `comm.run`: the first of several, as `comm.libraries` lists them; none where there is one."""
    here = libraries()
    return {"library": here[0].name} if len(here) > 1 else {}


def alternate(comm: Communicator, names: Sequence[str], options: Mapping[str, Any], rounds: int, team: Any = None) -> list[list[float]]:
    """On every rank: seconds of each round of each program, the slowest rank's; which goes first changes from round to round."""
    if team is not None:
        comm.__dict__["team"] = team
    try:
        return _alternate(comm, names, options, rounds)
    except BaseException:
        if team is not None:
            team.barrier.abort()
        raise


def _alternate(comm: Communicator, names: Sequence[str], options: Mapping[str, Any], rounds: int) -> list[list[float]]:
    bodies = [_body(found(name), comm, options) for name in names]
    answers = [_bits(body()) for body in bodies]
    if any(answer != answers[0] for answer in answers):
        raise RuntimeError(f"rank {comm.rank}: {', '.join(names)} give different bits")
    clock, seconds = comm.now, np.zeros((len(bodies), rounds))
    collected = gc.isenabled()
    gc.disable()
    try:
        for turn in range(rounds):
            order = range(len(bodies)) if turn % 2 else reversed(range(len(bodies)))
            for i in order:
                comm.barrier()
                start = clock()
                bodies[i]()
                seconds[i, turn] = clock() - start
    finally:
        if collected:
            gc.enable()
    answer: list[list[float]] = comm.allreduce(seconds, op=MAX).tolist()
    return answer


def _body(program: Any, comm: Communicator, options: Mapping[str, Any]) -> Any:
    """What is to be timed: what the program prepared, or the program itself where it prepares nothing."""
    made = program(comm, **options)
    return made if callable(made) else lambda: program(comm, **options)


def _bits(answer: Any) -> Any:
    if isinstance(answer, tuple):
        return tuple(_bits(part) for part in answer)
    if hasattr(answer, "cpu"):
        answer = answer.cpu().numpy()
    return answer.tobytes() if isinstance(answer, np.ndarray) else answer


def _team(ranks: int) -> Any:
    return importlib.import_module("armillary.network.backends.threads_native").Team(ranks)
