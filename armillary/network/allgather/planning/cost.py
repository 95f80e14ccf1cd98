"""What one call takes by counting: T = sum over steps of the latency and the busiest rank, core or NIC.

    T = sum_t [ L_t + max( max_r busy_rt, max_v messages_vt·g + bytes_vt/B ) ],     busy = messages·o + eager bytes·C + copies

L_t is the wire's latency if a message of the step leaves its node, three times that if one of them must ask first (rendezvous), and the
latency of shared memory otherwise. Copies cost `piece` seconds per run plus bytes over the rate of a core, or of the node's memory shared
by the ranks that copy in this step. The formula lets no step overlap with the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from armillary.kernels import loop

if TYPE_CHECKING:
    from .prices import Prices
    from .schedule import Schedule

Floats = npt.NDArray[np.float64]


def copying(schedule: Schedule, prices: Prices) -> tuple[npt.NDArray[np.int64], Floats]:
    """The seconds of copying by rank and step: the keys step·ranks + rank, ascending, and the seconds of each."""
    ranks, node = schedule.problem.ranks, schedule.problem.node_of
    key = schedule.copy_step * ranks + schedule.copy_rank
    at = np.flatnonzero(np.concatenate((np.ones(min(1, len(key)), bool), key[1:] != key[:-1])))
    keys = key[at]
    if not len(keys):
        return keys, np.empty(0)
    nbytes = np.add.reduceat(schedule.copy_bytes, at)
    pieces = np.diff(np.concatenate((at, [len(key)])))
    place = (keys // ranks) * schedule.problem.nodes + node[keys % ranks]
    _, inverse, busy = np.unique(place, return_inverse=True, return_counts=True)
    rate = np.maximum(prices.copy, prices.memory * busy[inverse])
    return keys, pieces * prices.piece + nbytes * rate


def cost(schedule: Schedule, prices: Prices) -> float:
    """The seconds of one call by the formula above."""
    if schedule.steps == 0:
        return 0.0
    keys, seconds = copying(schedule, prices)
    busy = np.zeros(schedule.problem.ranks)
    return float(
        _cost(
            np.array(prices, np.float64), schedule.steps, schedule.step, schedule.source, schedule.destination, schedule.nbytes,
            schedule.problem.node_of, schedule.problem.nodes, keys, seconds, busy,
        )
    )  # fmt: skip


@loop
def _cost(prices, steps, step, source, destination, nbytes, node, nodes, keys, seconds, busy):  # type: ignore[no-untyped-def]
    latency, send, receive, gap, byte_gap, copy, eager = prices[0], prices[1], prices[2], prices[3], prices[4], prices[5], prices[6]
    near_latency, near, near_eager, memory = prices[7], prices[8], prices[9], prices[11]
    ranks = len(node)
    out, into, moved = np.zeros(nodes), np.zeros(nodes), np.zeros(nodes)
    total, i, c = 0.0, 0, 0
    for now in range(steps):
        busy[:], out[:], into[:], moved[:] = 0.0, 0.0, 0.0, 0.0
        waits = 0.0
        while c < len(keys) and keys[c] // ranks == now:
            busy[keys[c] % ranks] += seconds[c]
            c += 1
        while i < len(step) and step[i] == now:
            a, b, n = source[i], destination[i], nbytes[i]
            i += 1
            if node[a] != node[b]:
                asks = n > eager
                copied = 0.0 if asks else n * copy
                busy[a] += send + copied
                busy[b] += receive + copied
                out[node[a]] += gap + n * byte_gap
                into[node[b]] += gap + n * byte_gap
                waits = max(waits, 3 * latency if asks else latency)
            else:
                asks = n > near_eager
                copied = n * copy
                busy[a] += near + copied
                busy[b] += near + (0.0 if asks else copied)
                moved[node[a]] += 2 * n * memory
                waits = max(waits, 4 * near_latency if asks else near_latency)
        most = 0.0
        for rank in range(ranks):
            most = max(most, busy[rank])
        for v in range(nodes):
            most = max(most, out[v], into[v], moved[v])
        total += waits + most
    return total
