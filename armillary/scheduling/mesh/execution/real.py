"""Steps that really run: ranks spin for their blocks' costs and send each other real messages.

The ranks are threads of this process (or those of another backend of `armillary.comm`). A block's cost is a number of iterations of a
compiled loop, calibrated once per process, so that a busy machine slows it down as it would slow real work.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np

from armillary import comm
from armillary.kernels import loop
from armillary.scheduling.mesh.octree.mesh import Floats, Graph, Ints

MOST_RANKS = 8
#: Seconds of computation that a real run may ask for, and bytes that one of its steps may send.
MOST_SECONDS = 60.0
MOST_BYTES = 1 << 28


@loop
def spin(iterations, x):  # type: ignore[no-untyped-def]
    """A chain of operations that the compiler cannot shorten, because it does not know where x begins."""
    for _ in range(iterations):
        x = x * 0.999 + 0.001
    return x


@functools.cache
def iterations_per_us() -> float:
    """Iterations of `spin` per µs of CPU time: the best of several short runs."""
    spin(10, 0.5)
    best = np.inf
    for _ in range(5):
        start = time.thread_time()
        spin(1_000_000, 0.5)
        best = min(best, time.thread_time() - start)
    return 1.0 / float(best)


def real_step_us(costs: Floats, placement: Ints, graph: Graph, ranks: int, backend: str = "threads") -> float:
    """µs of one step on this machine, from a barrier to the end of the all-reduce, on the slowest rank."""
    source, target = placement[graph.source], placement[graph.target]
    away = np.flatnonzero(source != target)
    spins = np.rint(costs * iterations_per_us()).astype(np.int64)
    order = np.argsort(placement, kind="stable")
    tasks = [order[placement[order] == r] for r in range(ranks)]
    return 1e6 * max(_run(ranks, backend, _program, tasks, spins, graph.source[away], source[away], target[away], graph.size[away]))


def real_move_us(source: Ints, target: Ints, size: Floats, ranks: int, backend: str = "threads") -> float:
    """µs until these messages between ranks are delivered on this machine."""
    if not len(source):
        return 0.0
    none = [np.empty(0, np.int64)] * ranks
    return 1e6 * max(_run(ranks, backend, _program, none, np.empty(0, np.int64), np.full(len(source), -1), source, target, size))


def _run(ranks: int, backend: str, program: Any, *arguments: Any) -> list[float]:
    return list(comm.run(program, *arguments, ranks=ranks, backend=backend if ranks > 1 else "one").values)


def _program(
    ranks: Any, tasks: list[Ints], spins: Ints, block: Ints, source: Ints, target: Ints, size: Floats
) -> float:  # fmt: skip
    me = ranks.rank
    incoming = np.flatnonzero(target == me).tolist()
    outgoing: dict[int, list[int]] = {}
    for m in np.flatnonzero(source == me).tolist():
        outgoing.setdefault(int(block[m]), []).append(m)
    sent = {m: np.full(max(1, int(size[m])), m % 251, np.uint8) for messages in outgoing.values() for m in messages}
    room = {m: np.empty(max(1, int(size[m])), np.uint8) for m in incoming}
    ranks.barrier()
    start = ranks.now()
    requests = [ranks.irecv(room[m], int(source[m]), m) for m in incoming]
    requests += [ranks.isend(sent[m], int(target[m]), m) for m in outgoing.get(-1, [])]
    for b in tasks[me].tolist():
        spin(spins[b], 0.5)
        requests += [ranks.isend(sent[m], int(target[m]), m) for m in outgoing.get(b, [])]
    ranks.waitall(requests)
    ranks.allreduce(np.zeros(1))
    seconds = float(ranks.now() - start)
    for m, got in room.items():
        if got[0] != m % 251 or got[-1] != m % 251:
            raise AssertionError(f"rank {me} did not receive message {m}")
    return seconds
