"""The clocks of live ranks: measure neighbours in both directions, keep the quickest exchanges, fit offset and drift.

Ranks are measured along the edges of a hypercube, in bursts that are spread over the given time. Of each burst the exchange with the least
delay counts, because waiting only ever adds to a passage. A line through the bursts gives offset and drift. Offsets to rank 0 add up along
the way with the least error, and so do the errors, which are bounds: half of a round trip is the most that the ways may differ.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

from .two_way import two_way_offset

Floats = npt.NDArray[np.float64]
TAG = 4711
#: What is taken for a bound on the drift of two clocks where too few bursts were quick enough to see it.
LARGEST_DRIFT = 1e-3


@dataclass(frozen=True)
class AlignedClock:
    """What a rank's clock is against rank 0's: `clock(t)` is common time, in seconds."""

    rank: int
    #: Rank 0's clock minus this one at `at`, how much that changes per second, and the bound on its error.
    offset: float
    drift: float
    error: float
    #: The bound on the error of the drift.
    drift_error: float
    #: The local time to which `offset` belongs, and the mean one-way delay of the quickest exchanges on the way to rank 0.
    at: float
    delay: float

    def __call__(self, local: Any) -> Any:
        """Common time of local times, numbers or arrays."""
        return local + self.offset + self.drift * (local - self.at)

    def error_at(self, local: float) -> float:
        """The bound on the error of common time at a local time; it grows with the distance from the measurement."""
        return self.error + self.drift_error * max(0.0, abs(local - self.at))


def align(
    comm: Any, seconds: float = 1.0, *, bursts: int = 8, exchanges: int = 50, clock: Callable[[], float] = time.perf_counter
) -> AlignedClock:
    """This rank's clock against rank 0's. Every rank calls it; mpi4py's communicators are adopted.

    seconds: how long the bursts are spread over. exchanges: per burst and link. clock: what is to be aligned, in seconds.
    """
    from armillary.comm import Communicator

    if not (0 <= seconds <= 3600 and 2 <= bursts <= 10_000 and 1 <= exchanges <= 1_000_000):
        said = f"found {seconds:g} seconds, {bursts} bursts and {exchanges} exchanges"
        raise InputError(f"{said}; expected 0 to 3600, at least 2 and at least 1")
    ranks: Communicator = comm if isinstance(comm, Communicator) else Communicator.adopt(comm)
    partners = [ranks.rank ^ (1 << bit) for bit in range(max(1, (ranks.size - 1).bit_length()))]
    partners = [other for other in partners if other < ranks.size]
    seen: dict[int, list[tuple[float, float, float]]] = {other: [] for other in partners}
    for burst in range(bursts):
        if burst and seconds:
            time.sleep(seconds / (bursts - 1))
        ranks.barrier()
        for other in partners:
            if ranks.rank < other:
                stamps = _ask(ranks, other, exchanges, clock)
                offset, delay, _ = two_way_offset(*stamps)
                best = int(np.argmin(delay))
                seen[other].append((float(stamps[0][best] + stamps[3][best]) / 2, float(offset[best]), float(delay[best])))
            else:
                _answer(ranks, other, exchanges, clock)
    # One row per possible partner: other rank, time, offset, drift, and the errors of both; NaN where there is none.
    rows = np.full((max(1, (ranks.size - 1).bit_length()), 6), np.nan)
    for i, (other, found) in enumerate(item for item in seen.items() if item[1]):
        rows[i] = (other, *_line(np.array(found)))
    every = np.asarray(ranks.allgather(rows)).reshape(ranks.size, -1, 6)
    return _along(every, ranks.rank, ranks.size, clock())


def _ask(ranks: Any, other: int, exchanges: int, clock: Callable[[], float]) -> Floats:
    sent, back = np.zeros(1), np.zeros(2)
    stamps = np.empty((4, exchanges))
    for i in range(exchanges):
        stamps[0, i] = clock()
        ranks.send(sent, other, TAG)
        ranks.recv(back, other, TAG)
        stamps[3, i] = clock()
        stamps[1, i], stamps[2, i] = back
    return stamps


def _answer(ranks: Any, other: int, exchanges: int, clock: Callable[[], float]) -> None:
    asked, back = np.zeros(1), np.zeros(2)
    for _ in range(exchanges):
        ranks.recv(asked, other, TAG)
        back[0] = clock()
        back[1] = clock()
        ranks.send(back, other, TAG)


def _line(found: Floats) -> tuple[float, float, float, float, float]:
    """(time, offset, drift, error of the offset, error of the drift) of the bursts whose delay is not much above the least of all.

    Every burst's offset is within its delay of the truth, so the errors of mean and slope are bounded by sums of delays. A slope that is
    not larger than its error is taken for none, and makes the error larger.
    """
    at, offset, delay = found.T
    quick = delay <= 1.5 * delay.min() + 1e-9
    at, offset, delay = at[quick], offset[quick], delay[quick]
    middle = float(at.mean())
    apart = at - middle
    spread = float((apart**2).sum())
    if len(at) < 3 or not spread > 0:
        return middle, float(offset.mean()), 0.0, float(delay.mean()), LARGEST_DRIFT
    drift, unsure = float((apart * offset).sum() / spread), float((np.abs(apart) * delay).sum() / spread)
    if abs(drift) <= unsure:
        drift, unsure = 0.0, abs(drift) + unsure
    return middle, float(offset.mean()), drift, float(delay.mean()), min(unsure, max(LARGEST_DRIFT, abs(drift)))


def _along(every: Floats, rank: int, size: int, now: float) -> AlignedClock:
    """The clock of a rank along the way to rank 0 on which the errors add up to least."""
    links: dict[int, list[tuple[int, Floats, bool]]] = {r: [] for r in range(size)}
    for low in range(size):
        for row in every[low]:
            if np.isfinite(row[0]):
                links[low].append((int(row[0]), row, True))
                links[int(row[0])].append((low, row, False))
    # By rank: the next one on the way to rank 0, the link between them, and whether this rank is the lower of the two.
    toward: dict[int, tuple[int, Floats, bool]] = {}
    waiting: list[tuple[float, int]] = [(0.0, 0)]
    error = dict.fromkeys(range(size), np.inf) | {0: 0.0}
    while waiting:
        so_far, here = heapq.heappop(waiting)
        if so_far > error[here]:
            continue
        for other, row, low in links[here]:
            if so_far + row[4] < error[other]:
                error[other] = so_far + float(row[4])
                toward[other] = (here, row, not low)
                heapq.heappush(waiting, (error[other], other))
    if rank == 0:
        return AlignedClock(0, 0.0, 0.0, 0.0, 0.0, now, 0.0)
    _, first, low = toward[rank]
    at = float(first[1] if low else first[1] + first[2])
    time_there, drift, drift_error, hops, here = at, 0.0, 0.0, 0, rank
    while here != 0:
        before, (_, middle, offset, slope, _, unsure), low = toward[here]
        # A link says what the higher rank's clock is ahead of the lower one's, at times of the lower one's.
        lower = time_there if low else time_there - offset - slope * (time_there - offset - middle)
        ahead = offset + slope * (lower - middle)
        time_there += ahead if low else -ahead
        # Where middles of links differ, so may what was extrapolated from them.
        error[rank] += unsure * abs(lower - middle)
        drift += slope if low else -slope
        drift_error += unsure
        hops, here = hops + 1, before
    delays = error[rank] / max(1, hops)
    return AlignedClock(rank, time_there - at, drift, error[rank], drift_error, at, delays)
