"""Three short probes of the messages of a live communicator: latency, bandwidth, and the gap between messages.

Rank 0 and the first rank of another node (or, on one node, the last rank) send each other 8 bytes and 1 MiB, and bursts of 64 messages of 8
bytes. All ranks wait for the probes and get the same prices, so all of them plan the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.comm import waitall

from ..planning.prices import Prices
from ..planning.problem import Problem

#: Exchanges per probe, of which the fastest counts, the long message, and the messages of a burst.
ROUNDS, LONG_BYTES, BURST = 20, 1 << 20, 64
#: Half of a one-way time of 8 bytes is taken as overhead of the two cores; nothing tells them apart in these probes.
OVERHEAD_SHARE = 0.5


def measured(ranks: Any, problem: Problem) -> Prices:
    """Prices by the three probes; one rank alone has nobody to probe, and gets those of memory."""
    found = np.zeros(3)
    if ranks.size > 1:
        away = np.flatnonzero(problem.node_of != problem.node_of[0])
        partner = int(away[0]) if len(away) else ranks.size - 1
        if ranks.rank == 0:
            found[:] = _probe(ranks, partner, True)
        elif ranks.rank == partner:
            _probe(ranks, 0, False)
        ranks.bcast(found, 0)
    else:
        found[:] = (1e-6, 1e-6 + LONG_BYTES * 1e-10, BURST * 1e-7)
    short, long, burst = (float(value) for value in found)
    overhead = OVERHEAD_SHARE * short / 2
    gap = max(burst / BURST - 2 * overhead, 0.0)
    byte_gap = max((long - short) / LONG_BYTES, 1e-12)
    latency = max(short - 2 * overhead, 1e-9)
    return Prices(latency, overhead, overhead, gap, byte_gap, byte_gap / 2, 16384, latency, overhead, 8192, 8192, byte_gap / 8)


def _probe(ranks: Any, other: int, first: bool) -> tuple[float, float, float]:
    """One-way seconds of 8 bytes and of 1 MiB, and the seconds of a burst, the least of all rounds."""
    best = [np.inf, np.inf, np.inf]
    small, large = np.zeros(8, np.uint8), np.zeros(LONG_BYTES, np.uint8)
    rows = np.zeros((BURST, 8), np.uint8)
    for _ in range(ROUNDS):
        for i, ball in enumerate((small, large)):
            start = ranks.now()
            if first:
                ranks.send(ball, other)
                ranks.recv(ball, other)
            else:
                ranks.recv(ball, other)
                ranks.send(ball, other)
            best[i] = min(best[i], (ranks.now() - start) / 2)
        start = ranks.now()
        if first:
            waitall([ranks.isend(row, other) for row in rows])
            ranks.recv(small, other)
        else:
            waitall([ranks.irecv(row, other) for row in rows])
            ranks.send(small, other)
        best[2] = min(best[2], ranks.now() - start - best[0])
    return best[0], best[1], max(best[2], 0.0)
