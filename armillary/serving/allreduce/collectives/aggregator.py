"""Computes the sum itself: an all-reduce of real arrays over ranks, partly through an emulated switch and partly round a ring.

Switches add integers. A block of floats is scaled by a power of two so that its largest magnitude is at most 2²⁴, rounded, added up as
integers in the switch's slots, and scaled back. The error of a sum of n is at most n·2⁻²⁴ of that power of two, so at most n·2⁻²³ of the
largest magnitude; whole numbers up to 2²⁴ are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

#: Bits of a value in fixed point; 32-bit sums then hold 127 workers.
FIXED_BITS, MOST_WORKERS = 24, 127
Values = npt.NDArray[np.int32]


@dataclass
class Aggregator:
    """A switch's slots as a state machine without I/O, which takes packets and returns sums.

    The first packet of a number takes a slot, and the last worker's packet frees it. Packets that arrive when every slot is taken are kept
    outside, which the sender's window should prevent, and counted in `overflows`.
    """

    workers: int
    slots: int
    #: packet -> (sum so far, workers that have sent)
    held: dict[int, tuple[Values, set[int]]] = field(default_factory=dict)
    outside: dict[int, tuple[Values, set[int]]] = field(default_factory=dict)
    most: int = 0
    overflows: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= MOST_WORKERS:
            raise InputError(f"workers: found {self.workers}; expected 1 to {MOST_WORKERS}, or 32-bit sums overflow")
        if self.slots < 1:
            raise InputError(f"slots: found {self.slots}; expected at least 1")

    def receive(self, packet: int, worker: int, values: Values) -> Values | None:
        """Adds a worker's packet; returns the sum if it was the last of its number."""
        where = self.outside if packet in self.outside else self.held
        if packet not in where and len(self.held) >= self.slots:
            where = self.outside
            self.overflows += 1
        total, seen = where.get(packet, (np.zeros(len(values), np.int32), set()))
        if worker in seen:
            raise InputError(f"packet {packet}: worker {worker} sent it twice; expected once")
        if len(values) != len(total):
            raise InputError(f"packet {packet}: found {len(values)} values; expected {len(total)}")
        total = total + values
        seen.add(worker)
        where[packet] = (total, seen)
        self.most = max(self.most, len(self.held))
        if len(seen) < self.workers:
            return None
        del where[packet]
        return total


def scale_for(largest: float) -> float:
    """Returns the power of two that brings `largest` to at most 2²⁴."""
    if largest == 0:
        return 1.0
    if not math.isfinite(largest):
        raise InputError(f"values: found {largest}; expected finite numbers")
    return 2.0 ** (FIXED_BITS - math.ceil(math.log2(largest)))


def allreduce(
    comm: Any, mine: npt.NDArray[np.float64] | None, servers: int, gpus: int, x: float, slots: int = 512, payload: int = 1024
) -> tuple[npt.NDArray[np.float64] | None, dict[str, int]]:
    """Runs one rank of the all-reduce; ranks 0 to servers·gpus−1 hold arrays, and the last rank is the switch.

    Inside a server, shares are reduced and scattered. The part x of each share goes through the switch and the rest round the ring of the
    servers, and then the server gathers. Returns (the sum, elements by switch and by ring).
    """
    n = servers * gpus
    group = comm.split(0 if comm.rank < n else None, comm.rank)
    if comm.rank == n:
        return None, _switch(comm, servers, gpus, slots, payload)
    assert mine is not None
    assert group is not None
    server, gpu = divmod(comm.rank, gpus)
    inside, across = group.split(server, gpu), group.split(gpu, server)
    bounds = [len(mine) * k // gpus for k in range(gpus + 1)]
    share = np.empty(bounds[gpu + 1] - bounds[gpu])
    for k in range(gpus):
        inside.reduce(np.ascontiguousarray(mine[bounds[k] : bounds[k + 1]]), share if k == gpu else None, root=k)
    cut = round(x * len(share))
    through = _by_switch(comm, across, share[:cut], n, gpu, servers, max(1, slots // gpus), payload)
    around = _by_ring(across, share[cut:])
    whole = inside.allgatherv(np.concatenate([through, around]))
    return whole, {"switch": cut, "ring": len(share) - cut}


def _by_switch(comm: Any, across: Any, share: Any, switch: int, gpu: int, servers: int, window: int, payload: int) -> Any:
    """Sends a share in packets, at most as many at a time as the window has slots; returns the sums."""
    if servers == 1 or not len(share):
        return _closed(comm, switch, gpu, share)
    from armillary.comm import MAX

    largest = float(across.allreduce(np.array([np.abs(share).max()]), op=MAX)[0])
    scale = scale_for(largest)
    fixed = np.rint(share * scale).astype(np.int32)
    size = max(1, payload // 4)
    starts = range(0, len(fixed), size)
    out, got = np.empty(len(fixed), np.int32), np.empty(size + 3, np.int32)
    for sent in range(len(starts) + window):
        if sent < len(starts):
            piece = fixed[starts[sent] : starts[sent] + size]
            comm.send(np.concatenate([np.array([gpu, sent, len(piece)], np.int32), piece, np.zeros(size - len(piece), np.int32)]), switch)
        back = sent - window + 1
        if 0 <= back < len(starts):
            comm.recv(got, switch)
            number, length = int(got[1]), int(got[2])
            out[number * size : number * size + length] = got[3 : 3 + length]
    return _closed(comm, switch, gpu, out / scale)


def _closed(comm: Any, switch: int, gpu: int, found: Any) -> Any:
    comm.send(np.array([gpu, -1, 0], np.int32), switch)
    return np.asarray(found, float)


def _switch(comm: Any, servers: int, gpus: int, slots: int, payload: int) -> dict[str, int]:
    """Runs the switch's rank, which adds packets until every worker has finished."""
    from armillary.comm import ANY_SOURCE

    lanes = [Aggregator(servers, max(1, slots // gpus)) for _ in range(gpus)]
    ended, packet = 0, np.empty(max(1, payload // 4) + 3, np.int32)
    while ended < servers * gpus:
        status = comm.recv(packet, ANY_SOURCE)
        gpu, number, _ = (int(v) for v in packet[:3])
        if number < 0:
            ended += 1
            continue
        total = lanes[gpu].receive(number, status.source // gpus, packet[3:].copy())
        if total is not None:
            answer = np.concatenate([packet[:3], total])
            for server in range(servers):
                comm.send(answer, server * gpus + gpu)
    return {"most_slots": sum(lane.most for lane in lanes), "overflows": sum(lane.overflows for lane in lanes)}


def _by_ring(across: Any, share: Any) -> Any:
    """Does a reduce-scatter and an all-gather round the servers, with s−1 steps each."""
    s, me = across.size, across.rank
    if s == 1 or not len(share):
        return np.asarray(share, float)
    out = np.array(share, float)
    bounds = [len(out) * k // s for k in range(s + 1)]
    right, left = (me + 1) % s, (me - 1) % s
    for step in range(2 * (s - 1)):
        give, take = (me - step) % s, (me - step - 1) % s
        got = np.empty(bounds[take + 1] - bounds[take])
        across.sendrecv(np.ascontiguousarray(out[bounds[give] : bounds[give + 1]]), right, got, left)
        if step < s - 1:
            out[bounds[take] : bounds[take + 1]] += got
        else:
            out[bounds[take] : bounds[take + 1]] = got
    return out


def reduce_arrays(
    arrays: npt.ArrayLike,
    servers: int,
    gpus: int,
    x: float,
    *,
    slots: int = 512,
    payload: int = 1024,
    backend: str = "threads",
    **options: Any,
) -> tuple[npt.NDArray[np.float64], dict[str, int]]:
    """Sums one array per GPU on the hybrid path over real ranks; also returns the elements that went each way and the most slots in use.

    `arrays` is [servers·gpus, elements]; `backend` and `options` are those of `armillary.comm.run`.
    """
    from armillary import comm

    rows = np.asarray(arrays, float)
    if rows.ndim != 2 or len(rows) != servers * gpus or servers < 1 or gpus < 1:
        raise InputError(f"arrays: found {rows.shape}; expected one row for each of {servers} x {gpus} GPUs")
    if not 0 <= x <= 1:
        raise InputError(f"x: found {x}; expected a share from 0 to 1")
    if not np.isfinite(rows).all():
        raise InputError("arrays: expected finite numbers")

    def program(ranks: Any) -> Any:
        return allreduce(ranks, rows[ranks.rank] if ranks.rank < len(rows) else None, servers, gpus, x, slots, payload)

    values = comm.run(program, ranks=servers * gpus + 1, backend=backend, **options).values
    counts = {
        "switch": sum(v[1]["switch"] for v in values[:-1]) // servers, "ring": sum(v[1]["ring"] for v in values[:-1]) // servers,
        **values[-1][1],
    }  # fmt: skip
    for other in values[1:-1]:
        assert np.array_equal(other[0], values[0][0])
    return np.asarray(values[0][0]), counts
