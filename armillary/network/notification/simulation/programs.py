"""The programs of the scenarios: each starts transfers, computes, and waits, again and again.

A program returns the times at which the timed part began and ended, and what its core did in between. One iteration goes before, untimed,
so that receivers' buffers are known; then all ranks meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from armillary.comm import Ghost
from armillary.network.notification.workload import BURST, BURST_RATE, CHUNKS, COLLECTIVE, RENDEZVOUS, STENCIL, Scenario

#: (begin, end, seconds of copying, handling, computing, waiting, stolen, runs of the handler)
Ran = tuple[float, float, float, float, float, float, float, int]
_STOP, _COUNT, _MESSAGE = 7, 8, 9


def program(comm: Any, scenario: Scenario, compute_s: float) -> Ran:
    """One rank of a scenario, which computes `compute_s` seconds per iteration."""
    if scenario.trace is not None:
        return _timed(comm, lambda: _traced(comm, scenario, compute_s > 0.0))
    step = _STEPS[scenario.scenario](comm, scenario)
    if scenario.scenario != BURST:
        step(0.0)
    comm.barrier()

    def iterations() -> None:
        for _ in range(scenario.iterations if scenario.scenario != BURST else 1):
            step(compute_s)

    return _timed(comm, iterations)


def _timed(comm: Any, body: Callable[[], None]) -> Ran:
    busy = comm.busy
    before = _state(busy)
    begin = comm.now()
    body()
    end = comm.now()
    after = _state(busy)
    spent = [b - a for a, b in zip(before, after)]
    return begin, end, spent[0], spent[1], spent[2], spent[3], spent[4], int(spent[5])


def _state(busy: Any) -> tuple[float, ...]:
    return busy.copying, busy.handling, busy.computing, busy.waiting, busy.stolen, busy.runs


def _partner(comm: Any) -> int | None:
    """The other rank of this one's pair; the last of an odd number of ranks has none."""
    other: int = comm.rank ^ 1
    return other if other < comm.size else None


def _rendezvous(comm: Any, scenario: Scenario) -> Callable[[float], None]:
    """The even rank of each pair sends a message to the odd one."""
    partner, message = _partner(comm), Ghost(scenario.nbytes)

    def step(compute_s: float) -> None:
        requests = []
        if partner is not None:
            requests.append(comm.irecv(message, partner, 0) if comm.rank % 2 else comm.isend(message, partner, 0))
        comm.compute(compute_s)
        comm.waitall(requests)

    return step


def _chunks(comm: Any, scenario: Scenario) -> Callable[[float], None]:
    """Both ranks of a pair send to each other, with the next receive posted ahead, so that a sender may write as soon as it sends."""
    partner, message = _partner(comm), Ghost(scenario.nbytes)
    if partner is None:
        return comm.compute
    posted = [comm.irecv(message, partner, 0)]

    def step(compute_s: float) -> None:
        posted.append(comm.irecv(message, partner, 0))
        sent = comm.isend(message, partner, 0)
        comm.compute(compute_s)
        comm.waitall([posted.pop(0), sent])

    return step


def _collective(comm: Any, scenario: Scenario) -> Callable[[float], None]:
    """An allreduce and a broadcast, each with half of the computing beside it."""
    mine, answer, table = Ghost(scenario.nbytes), Ghost(scenario.nbytes), Ghost(scenario.nbytes)

    def step(compute_s: float) -> None:
        call = comm.iallreduce(mine, answer)
        comm.compute(compute_s / 2)
        call.wait()
        call = comm.ibcast(table)
        comm.compute(compute_s / 2)
        call.wait()

    return step


def _stencil(comm: Any, scenario: Scenario) -> Callable[[float], None]:
    """Eight neighbours on a periodic grid; a neighbour that is the rank itself is left out."""
    rows = max(d for d in range(1, math.isqrt(comm.size) + 1) if comm.size % d == 0)
    columns = comm.size // rows
    row, column = divmod(comm.rank, columns)
    around = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
    halo = Ghost(scenario.nbytes)

    def at(i: int, j: int) -> int:
        return (row + i) % rows * columns + (column + j) % columns

    def step(compute_s: float) -> None:
        requests = [comm.irecv(halo, at(i, j), k) for k, (i, j) in enumerate(around) if at(i, j) != comm.rank]
        requests += [comm.isend(halo, at(-i, -j), k) for k, (i, j) in enumerate(around) if at(-i, -j) != comm.rank]
        comm.compute(compute_s)
        comm.waitall(requests)

    return step


def _burst(comm: Any, scenario: Scenario) -> Callable[[float], None]:
    """Even ranks send small messages at a steady rate until the odd rank of their pair has computed enough and has received all of them."""
    partner, message = _partner(comm), Ghost(8)
    length = 1.0 / BURST_RATE

    def send(compute_s: float) -> None:
        stop = comm.irecv(message, partner, _STOP)
        sent = 0
        while True:
            begin = comm.now()
            if stop.test() is not None:
                break
            comm.isend(message, partner, _MESSAGE)
            sent += 1
            comm.compute(max(0.0, length - (comm.now() - begin)))
        comm.isend(Ghost(sent), partner, _COUNT)
        comm.recv(message, partner, _STOP)

    def receive(compute_s: float) -> None:
        comm.compute(compute_s)
        comm.isend(message, partner, _STOP)
        count = comm.recv(Ghost(1 << 30), partner, _COUNT).nbytes
        comm.waitall([comm.irecv(message, partner, _MESSAGE) for _ in range(count)])
        comm.isend(message, partner, _STOP)

    if partner is None:
        return comm.compute
    return receive if comm.rank % 2 else send


def _traced(comm: Any, scenario: Scenario, computes: bool) -> None:
    """What the trace says that this rank does."""
    assert scenario.trace is not None
    requests: list[Any] = []
    for compute_s, name, peer, nbytes in scenario.trace.of(comm.rank):
        if computes:
            comm.compute(compute_s)
        if name == "wait":
            comm.waitall(requests)
            requests = []
        elif name == "isend":
            requests.append(comm.isend(Ghost(nbytes), peer, 0))
        elif name == "irecv":
            requests.append(comm.irecv(Ghost(nbytes), peer, 0))
        elif name == "send":
            comm.send(Ghost(nbytes), peer, 0)
        elif name == "recv":
            comm.recv(Ghost(nbytes), peer, 0)
    comm.waitall(requests)


_STEPS = {RENDEZVOUS: _rendezvous, CHUNKS: _chunks, COLLECTIVE: _collective, STENCIL: _stencil, BURST: _burst}
