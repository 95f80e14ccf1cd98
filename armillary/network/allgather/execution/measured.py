"""Techniques on MPI processes of this machine, in turn with the library's own call, so that a busy machine disturbs all equally.

The library is represented by the faster one of its plain and its persistent call (MPI 4), because a technique's call is persistent too.

The ranks pretend to be on two nodes, so that messages between "nodes" are really sent, though through shared memory. Before the clock
starts, every technique must receive the bytes that `Neighbor_allgatherv` receives.
"""

from __future__ import annotations

import gc
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary import catalogue
from armillary.comm import MAX, Communicator, libraries, run
from armillary.parameters import canonical

#: Rounds that differ by more than this share of the median between their quartiles are noisy.
NOISY = 0.3
#: Calls per round, and the seconds after which a job is assumed to hang.
CALLS, PATIENCE_S = 5, 300.0


@dataclass(frozen=True)
class Rounds:
    """The microseconds per call of each round, of a technique and of the library in the same rounds."""

    own: tuple[float, ...]
    native: tuple[float, ...]

    @property
    def median_us(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.own)

    @property
    def over_native(self) -> float:
        """The median of the rounds' ratios to the library."""
        return statistics.median(a / b for a, b in zip(self.own, self.native))

    @property
    def noisy(self) -> bool:
        """Whether the rounds differ too much to hold a claim."""
        low, _, high = statistics.quantiles(self.own, n=4)
        return (high - low) / self.median_us > NOISY


def measure(techniques: Mapping[str, Any], ranks: int, bytes: int, rounds: int, library: str = "") -> dict[str, Rounds]:
    """The rounds of each technique on so many processes, which form a complete graph on two pretended nodes."""
    chosen = library or libraries()[0].name
    said = [[type(one).__name__, canonical(one)] for one in techniques.values()]
    target: Any = "armillary.network.allgather.execution.measured:alternate"
    table = run(target, said, bytes, rounds, ranks=ranks, backend="mpi", library=chosen, timeout=PATIENCE_S)[0]
    return {name: Rounds(tuple(table[i + 1]), tuple(table[0])) for i, name in enumerate(techniques)}


def alternate(comm: Communicator, techniques: Sequence[Sequence[str]], nbytes: int, rounds: int) -> list[list[float]]:
    """Times the library and each technique in turn on every rank; returns the microseconds per call of the slowest rank, by round."""
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    send = np.random.default_rng(comm.rank).integers(0, 256, nbytes, np.uint8)
    nodes = [rank * 2 // comm.size for rank in range(comm.size)]
    graph = comm.native.Create_dist_graph_adjacent(others, others, reorder=False)
    recv = np.zeros(nbytes * len(others), np.uint8)
    calls = native(graph, send, recv, [nbytes] * len(others))
    calls[0]()
    wanted, references = recv.tobytes(), len(calls)
    for name, parameters in techniques:
        call = _technique(name, parameters).on(comm, others, others, nbytes, nodes=nodes)
        own = np.zeros_like(recv)
        call(send, own)
        if own.tobytes() != wanted:
            raise RuntimeError(f"rank {comm.rank}: {name} received other bytes than Neighbor_allgatherv")
        calls.append(_bound(call, send, own))
    seconds = np.zeros((len(calls), rounds))
    clock, collected = comm.now, gc.isenabled()
    gc.disable()
    try:
        for turn in range(rounds):
            order = range(len(calls)) if turn % 2 else reversed(range(len(calls)))
            for i in order:
                comm.barrier()
                start = clock()
                for _ in range(CALLS):
                    calls[i]()
                seconds[i, turn] = (clock() - start) / CALLS
    finally:
        if collected:
            gc.enable()
    slowest = 1e6 * comm.allreduce(seconds, op=MAX)
    best = int(np.argmin(np.median(slowest[:references], axis=1)))
    found: list[list[float]] = [slowest[best].tolist(), *slowest[references:].tolist()]
    return found


def native(graph: Any, send: Any, recv: Any, counts: Sequence[int]) -> list[Any]:
    """The library's own calls: the plain one and, where the library has it, the persistent one."""
    message = [recv, counts]
    calls: list[Any] = [lambda: graph.Neighbor_allgatherv(send, message)]
    try:
        request = graph.Neighbor_allgatherv_init(send, message)
    except NotImplementedError:
        return calls

    def persistent() -> None:
        request.Start()
        request.Wait()

    return [*calls, persistent]


def _bound(call: Any, send: Any, recv: Any) -> Any:
    return lambda: call(send, recv)


def _technique(name: str, parameters: str) -> Any:
    arena = catalogue.arena("network/allgather")
    for known in arena.techniques:
        if arena.technique(known).__name__ == name:
            return arena.make(known, json.loads(parameters))
    raise RuntimeError(f"found no technique {name}")
