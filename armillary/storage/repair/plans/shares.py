"""How much each helper sends, and how shares become byte ranges with k different helpers each.

With R the rebuilt rate and u_i what helper i can send, any rates x_i ≤ min(u_i, R) that add up to kR will do, so the best R is the
largest with sum_i min(u_i, R) ≥ kR. The shares w_i = x_i / R lie in [0, 1] and add up to k. They are laid end to end on a line of length
k, which is cut into k rows of length 1 (McNaughton 1959, the wrap-around rule for preemptive schedules). At each position the k rows
name k different helpers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.kernels import loop

#: A share closer than this to a whole row counts as a whole row.
TINY = 1e-12


def water_filling(up: Sequence[float] | np.ndarray, k: int) -> float:
    """The largest R with sum_i min(u_i, R) ≥ k·R, in bytes/s as `up`; 0 with fewer than k helpers that can send.

    With the j fastest helpers capped at R, R = (sum of the others) / (k - j) if that lies between u_{j+1} and u_j; this takes O(n log n).
    """
    return float(_level(np.sort(np.asarray(up, np.float64))[::-1].copy(), k))


@loop
def _level(falling, k):
    n = len(falling)
    if k > n or k < 1:
        return 0.0
    for j in range(k):
        # The fastest j are capped; the others send all they can.
        level = falling[j:].sum() / (k - j)
        if level >= falling[j]:
            return level
    return 0.0


def wrap_around(shares: Sequence[float] | np.ndarray) -> list[tuple[float, float, tuple[int, ...]]]:
    """(from, to, helpers) of each range on [0, 1), each with k different helpers in their order.

    `shares` lie in [0, 1] and add up to a whole number k. There is at most one more range than there are helpers. Neighbours in `shares`
    overlap least, so the helpers of one rack should be next to each other.
    """
    cuts, chosen = ranges(np.asarray(shares, np.float64), round(float(np.sum(shares))))
    return [(float(cuts[r]), float(cuts[r + 1]), tuple(int(i) for i in np.sort(chosen[r]))) for r in range(len(chosen))]


@loop
def ranges(shares, k):
    """(cuts[r + 1], helpers[r, k]) of `wrap_around`; helpers in the order of `shares`."""
    n = len(shares)
    total = shares.sum()
    starts = np.empty(n + 1)
    starts[0] = 0.0
    for i in range(n):
        # Rounding is spread, so that the last share ends at k exactly.
        starts[i + 1] = starts[i] + shares[i] * (k / total)
    starts[n] = k
    for i in range(1, n):
        whole = np.floor(starts[i] + 0.5)
        if abs(starts[i] - whole) < TINY * k:
            starts[i] = whole
    cuts = np.empty(n + 1)
    count = 0
    for i in range(n):
        cuts[count] = starts[i] - np.floor(starts[i])
        count += 1
    ordered = np.sort(cuts[:count])
    kept = np.empty(count + 1)
    kept[0] = 0.0
    found = 1
    for i in range(count):
        if ordered[i] > kept[found - 1] + TINY * k:
            kept[found] = ordered[i]
            found += 1
    if 1.0 - kept[found - 1] <= TINY * k and found > 1:
        found -= 1
    kept[found] = 1.0
    chosen = np.empty((found, k), np.int64)
    for r in range(found):
        middle = 0.5 * (kept[r] + kept[r + 1])
        i = 0
        for row in range(k):
            while starts[i + 1] <= row + middle:
                i += 1
            chosen[r, row] = i
    return kept[: found + 1], chosen
