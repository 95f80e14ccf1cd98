"""Measures one method on one piece of work, on threads or in simulated time on virtual ranks; SciPy checks the answer."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary import comm
from armillary.comm.messages.buffers import Array
from armillary.comm.messages.requests import waitall

if TYPE_CHECKING:
    from armillary.comm.communicator import Communicator

    from ..workload import Work
    from .method import Method

PHASES = ("identify", "exchange", "build")


class WrongAnswer(Exception):
    """A method's result is not SciPy's."""


@dataclass(frozen=True)
class Measured:
    """What one operation took: seconds (the slowest rank's, median over rounds) also by phase, what ranks sent, and entries afterwards.

    `sent` and `messages` by rank; `peak_bytes` of all ranks together, None where it was not looked at.
    """

    seconds: float
    phases: Mapping[str, float]
    sent: list[int]
    messages: list[int]
    entries: list[int]
    peak_bytes: int | None


def measure(method: Method, work: Work, ranks: int, rounds: int = 3, cluster: Any = None) -> Measured:
    """Deals the matrix and does the operation `rounds` times and once more to count; with a cluster, once on its virtual ranks."""
    ranks = method.ranks(ranks)
    if cluster is None:
        result = comm.run(_program, method, work, rounds, True, ranks=ranks)
    else:
        chosen = {"alltoallv": full_blocks_alltoall}
        result = comm.run(_program, method, work, 0, False, ranks=ranks, backend="virtual", cluster=cluster, collectives=chosen)
    found = result.values
    _check(found[0]["whole"], work.expected)
    times = np.array([[end - start for start, end in one["rounds"]] for one in found])
    if cluster is not None:
        times = np.array([[max(one["rounds"][0][1] for one in found) - max(one["rounds"][0][0] for one in found)]])
    return Measured(
        float(np.median(times.max(axis=0))),
        {phase: max(one["phases"][phase] for one in found) for phase in PHASES},
        [one["sent"] for one in found],
        [one["messages"] for one in found],
        [one["entries"] for one in found],
        found[0]["peak"],
    )


def _program(ranks: Communicator, method: Method, work: Work, rounds: int, trace: bool) -> dict[str, Any]:
    dealt = method.deal(work.matrix, ranks)
    batches = [method.deal(batch, ranks) for _, _, batch in work.operation.batches]
    if trace and ranks.rank == 0:
        tracemalloc.start()
    before = _totals(ranks)
    ranks.barrier()
    started = ranks.now()
    result = method.apply(dealt, work.operation, batches)
    times = [(started, ranks.now())]
    after = _totals(ranks)
    seconds = {name: counters.seconds for name, counters in ranks.counters.items()}
    ranks.barrier()
    peak = None
    if trace and ranks.rank == 0:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    if rounds:
        times = []
        for _ in range(rounds):
            ranks.barrier()
            started = ranks.now()
            method.apply(dealt, work.operation, batches)
            ranks.barrier()
            times.append((started, ranks.now()))
        seconds = {name: (counters.seconds - seconds.get(name, 0.0)) / rounds for name, counters in ranks.counters.items()}
    return {
        "rounds": times,
        "phases": {phase: seconds.get(phase, 0.0) for phase in PHASES},
        "sent": after[0] - before[0],
        "messages": after[1] - before[1],
        "entries": method.entries(result),
        "peak": peak,
        "whole": method.collect(result),
    }


def _totals(ranks: Communicator) -> tuple[int, int]:
    counters = ranks.counters.values()
    return sum(c.bytes for c in counters), sum(c.messages for c in counters)


def _check(found: Any, expected: Any) -> None:
    """Refuses a result that differs from SciPy's in a single bit."""
    if found.shape != expected.shape or found.nnz != expected.nnz:
        raise WrongAnswer(f"found {found.nnz} entries of {found.shape}; expected {expected.nnz} of {expected.shape}")
    for name in ("indptr", "indices", "data"):
        if not np.array_equal(getattr(found, name), getattr(expected, name)):
            raise WrongAnswer(f"{name} differs from SciPy's")


def full_blocks_alltoall(ranks: Communicator, sends: list[Array], recvs: list[Array]) -> None:
    """Exchanges all blocks at once, without messages for empty ones, as MPI libraries do, because both sides know the counts."""
    size, rank = ranks.size, ranks.rank
    order = [(rank + i) % size for i in range(1, size)]
    requests = [ranks.irecv(recvs[r], r) for r in reversed(order) if recvs[r].size]
    requests += [ranks.isend(sends[r], r) for r in order if sends[r].size]
    recvs[rank][...] = sends[rank]
    waitall(requests)
