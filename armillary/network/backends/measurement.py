"""One set of ranks measures several texts of one program in turn, so that whatever disturbs the machine disturbs all of them equally."""

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

#: A measurement is noisy if its rounds spread by more than this share of the median.
NOISY = 0.3
#: The seconds after which a job is assumed to hang.
_PATIENCE_S = 900.0


@dataclass(frozen=True)
class Measured:
    """The seconds of each round of one text, and of its native twin in the same rounds (equal for the twin itself)."""

    seconds: tuple[float, ...]
    native: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median seconds of one round."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """The distance between the quartiles of the rounds, as a share of the median."""
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return (high - low) / self.median

    @property
    def noisy(self) -> bool:
        """Whether the rounds differ too much to hold a claim."""
        return self.spread > NOISY

    @property
    def overhead(self) -> float:
        """The per cent over the native twin, as the median of the ratios of the rounds."""
        return 100 * (statistics.median(own / twin for own, twin in zip(self.seconds, self.native)) - 1)


def measure(
    texts: Sequence[str], program: str, options: Mapping[str, Any], backend: str, ranks: int, rounds: int, seed: int = 0
) -> dict[str, Measured]:
    """Measures each text of the program in turn, `rounds` times; overheads are over the first, which is the native twin.

    `texts` are modules with a function named `program`; they are ignored if the program is a user's `module:function`. Texts that give
    different bits are an error.
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
    """The options that choose an MPI library for `comm.run`, which is the first if `comm.libraries` lists several."""
    here = libraries()
    return {"library": here[0].name} if len(here) > 1 else {}


def alternate(comm: Communicator, names: Sequence[str], options: Mapping[str, Any], rounds: int, team: Any = None) -> list[list[float]]:
    """Measures each round of each program on every rank and returns the slowest rank's seconds; the order alternates by round."""
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
    """The callable to time: what the program prepared, or the program itself if it prepares nothing."""
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
