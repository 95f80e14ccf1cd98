"""How likely a pod is used again: a decayed histogram of each function's gaps.

A gap is the time from the end of an invocation to the arrival that its pod would serve if no pod ever left (the latest end serves first),
so it does not depend on the policy. Each observation multiplies the counts by 0.98 and adds one to its bin, and what all functions did on
the training day counts as five observations more.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.kernels import kernel
from armillary.scheduling.faas.pods import step_of

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

#: The menu of keep-alives, in seconds.
ACTIONS = (0.0, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
DECAY, PRIOR_COUNTS, BINS = 0.98, 5.0, 24
#: Six bins per decade from 0.1 s to 1,000 s; the first one begins at 0, and longer gaps have a bin of their own.
EDGES: Floats = np.array([0.0, *(round(0.1 * 10 ** (k / 6), 6) for k in range(1, BINS + 1))])
#: The mean gap within each bin if gaps are log-uniform there; uniform in the first.
MEANS: Floats = np.array([EDGES[1] / 2, *((high - low) / np.log(high / low) for low, high in itertools.pairwise(EDGES[1:]))])
#: For every action but 0: its bin, and the share of the bin's gaps that are shorter.
PLACES: npt.NDArray[np.int64] = np.searchsorted(EDGES, ACTIONS[1:], side="right") - 1
SHARES: Floats = np.array([np.log(a / EDGES[k]) / np.log(EDGES[k + 1] / EDGES[k]) for a, k in zip(ACTIONS[1:], PLACES.tolist())])
KEEPS: Floats = np.array(ACTIONS)


def histogram(gaps_s: npt.ArrayLike) -> Floats:
    """The shares of the bins among gaps, [25]; the last bin has those of 1,000 s and more, infinite ones too. All 0 without any gap."""
    gaps = np.asarray(gaps_s, np.float64)
    counts = np.bincount(np.searchsorted(EDGES, gaps, side="right") - 1, minlength=BINS + 1).astype(np.float64)
    return counts / max(1.0, counts.sum())


@kernel
def observe(counts: Array, edges: Array, gap: float) -> None:
    """Adds a gap to the decayed counts [26], of which the last is their sum."""
    for k in range(counts.shape[0]):
        counts[k] *= DECAY
    counts[step_of(edges, gap)] += 1
    counts[counts.shape[0] - 1] += 1


@kernel
def reuse_into(counts: Array, prior: Array, places: Array, shares: Array, out: Array) -> None:
    """The probability of a reuse within each action but 0, into out[0:8]."""
    whole = counts[BINS + 1] + PRIOR_COUNTS
    below, a = 0.0, 0
    for k in range(BINS):
        mass = counts[k] + PRIOR_COUNTS * prior[k]
        while a < places.shape[0] and places[a] == k:
            out[a] = (below + shares[a] * mass) / whole
            a += 1
        below += mass


@kernel
def cheapest_edge(counts: Array, prior: Array, edges: Array, means: Array, late: float, dear: float) -> float:
    """The edge T at which `late·P(gap > T) + dear·E[min(gap, T)]` is least.

    late: what a cold start costs. dear: what a second of idling costs.
    """
    whole = counts[BINS + 1] + PRIOR_COUNTS
    survive, spent = 1.0, 0.0
    best, least = 0.0, late
    for k in range(BINS):
        share = (counts[k] + PRIOR_COUNTS * prior[k]) / whole
        survive -= share
        spent += survive * (edges[k + 1] - edges[k]) + share * (means[k] - edges[k])
        cost = late * survive + dear * spent
        if cost < least:
            best, least = edges[k + 1], cost
    return best


@kernel
def expected_cost(counts: Array, prior: Array, edges: Array, means: Array, late: float, dear: float, keep: float) -> float:
    """`late·P(gap > keep) + dear·E[min(gap, keep)]` for any keep-alive; gaps are uniform within the bin that it cuts."""
    whole = counts[BINS + 1] + PRIOR_COUNTS
    survive, spent = 1.0, 0.0
    for k in range(BINS):
        share = (counts[k] + PRIOR_COUNTS * prior[k]) / whole
        if keep < edges[k + 1]:
            part = (keep - edges[k]) / (edges[k + 1] - edges[k])
            spent += (keep - edges[k]) * (survive - 0.5 * part * share)
            survive -= part * share
            break
        survive -= share
        spent += survive * (edges[k + 1] - edges[k]) + share * (means[k] - edges[k])
    return late * survive + dear * spent
