"""What each policy decides when a pod becomes idle: from when and until when the pod is warm.

The state of a function is a row of numbers that the compiled loop keeps: decayed counts of gaps (26), gaps by minute (243), and what the
swarm remembers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.kernels import kernel
from armillary.learn import mlp_into

from .reuse import BINS, cheapest_edge, expected_cost, reuse_into

Array = npt.NDArray[Any]

FIXED, PLANNED, HISTOGRAM, BREAK_EVEN, SWARM, NETWORK = range(6)
#: Inputs of the network: eight probabilities of reuse, ln cold start, ln vCPU, ln GB, ln carbon intensity, its trend, log-odds of λ.
INPUTS, OUTPUTS = 14, 9
#: Minutes of the histogram policy; three numbers follow: longer gaps, gaps within, and the sum of the squared counts.
MINUTES = 240
#: The swarm: particles, rounds per hour, and the numbers that it keeps: chosen, hour, random state, then place, speed, own best place.
PARTICLES, ROUNDS, HEAD = 15, 10, 3
COUNTS, SWARM_STATE = BINS + 2, HEAD + 3 * PARTICLES
LONGEST_S = 600.0
#: Of "Serverless in the Wild": percentiles, margin, the least variation of the counts, and the most gaps beyond the histogram.
HEAD_SHARE, TAIL_SHARE, MARGIN, LEAST_CV, MOST_BEYOND = 0.05, 0.99, 0.1, 2.0, 0.5


@kernel
def observe_minute(minutes: Array, gap: float) -> None:
    """Adds a gap to the histogram of minutes."""
    k = int(gap / 60.0)
    if k >= MINUTES:
        minutes[MINUTES] += 1
        return
    minutes[MINUTES + 2] += 2 * minutes[k] + 1
    minutes[k] += 1
    minutes[MINUTES + 1] += 1


@kernel
def window_of(minutes: Array) -> tuple[float, float]:
    """(pre-warm, keep until), both in seconds after the end, by the histogram policy.

    Without a representative histogram (too many gaps beyond it, or counts that vary too little) the pod stays for all four hours.
    """
    inside, beyond = minutes[MINUTES + 1], minutes[MINUTES]
    if inside == 0 or beyond > MOST_BEYOND * (inside + beyond):
        return 0.0, 60.0 * MINUTES
    # CV² of the counts = bins·Σc²/(Σc)² − 1.
    if MINUTES * minutes[MINUTES + 2] / (inside * inside) - 1 <= LEAST_CV * LEAST_CV:
        return 0.0, 60.0 * MINUTES
    head, tail, below = -1, MINUTES - 1, 0.0
    for k in range(MINUTES):
        below += minutes[k]
        if head < 0 and below >= HEAD_SHARE * inside:
            head = k
        if below >= TAIL_SHARE * inside:
            tail = k
            break
    return 60.0 * head * (1 - MARGIN), 60.0 * (tail + 1) * (1 + MARGIN)


@kernel
def begin_swarm(state: Array, function: int) -> None:
    """An empty memory, with a generator of the function's own; two steps of it keep the first draws of low seeds apart."""
    state[:] = 0
    state[1] = -1e18
    state[2] = (function + 1) * 282475249.0 % 2147483647.0


@kernel
def _random(state: Array) -> float:
    """A number in [0, 1) from the swarm's own generator, a multiplicative one that is exact in float64."""
    state[2] = (state[2] * 16807.0) % 2147483647.0
    return state[2] / 2147483647.0


@kernel
def _seconds(place: float) -> float:
    return LONGEST_S * place * place * place


@kernel
def swarm_keep(
    state: Array, hour: float, counts: Array, prior: Array, edges: Array, means: Array, late: float, dear: float
) -> float:
    """The keep-alive of this hour, which a particle swarm looks for when the hour's first pod becomes idle.

    A particle's place u in [0, 1] stands for 600·u³ seconds. Particles stay from hour to hour, but every second one is thrown to a new
    place, because rates and intensities have changed meanwhile.
    """
    if state[1] == hour:
        return state[0]
    state[1] = hour
    best, least = 0.0, late
    for i in range(PARTICLES):
        at = HEAD + 3 * i
        if i % 2 == 0:
            state[at], state[at + 1] = _random(state), 0.2 * (_random(state) - 0.5)
        state[at + 2] = state[at]
        cost = expected_cost(counts, prior, edges, means, late, dear, _seconds(state[at]))
        if cost < least:
            best, least = state[at], cost
    for _ in range(ROUNDS):
        for i in range(PARTICLES):
            at = HEAD + 3 * i
            pull = 1.5 * _random(state) * (state[at + 2] - state[at]) + 1.5 * _random(state) * (best - state[at])
            state[at + 1] = 0.7 * state[at + 1] + pull
            state[at] = min(1.0, max(0.0, state[at] + state[at + 1]))
            cost = expected_cost(counts, prior, edges, means, late, dear, _seconds(state[at]))
            if cost < expected_cost(counts, prior, edges, means, late, dear, _seconds(state[at + 2])):
                state[at + 2] = state[at]
            if cost < least:
                best, least = state[at], cost
    state[0] = _seconds(best)
    return state[0]


@kernel
def observation_into(
    counts: Array, prior: Array, places: Array, shares: Array, facts: Array, intensity: float, trend: float, odds: float,
    see_reuse: bool, see_ci: bool, x: Array,
) -> None:  # fmt: skip
    """The network's inputs, into x [14]; 0 stands for what it does not see. facts: ln cold start, ln vCPU and ln GB."""
    if see_reuse:
        reuse_into(counts, prior, places, shares, x)
    x[8], x[9], x[10] = facts[0], facts[1], facts[2]
    x[11], x[12] = (intensity, trend) if see_ci else (0.0, 0.0)
    x[13] = odds


@kernel
def best_allowed(q: Array, menu: Array, late: float, dear: float, limit: bool) -> int:
    """The number of the largest output among the allowed actions.

    With `limit`, a wait ends at the latest at the first time of the menu at which idling has cost as much as a cold start, which is the
    deterministic rule of ski rental. It is a safeguard and no rule of dominance: if the distribution of gaps is known exactly, a longer
    wait may have the least expected cost. Where idling costs nothing, the longest action is taken.
    """
    last = q.shape[0] - 1
    if limit and dear == 0.0:
        return last
    best = 0
    for k in range(1, last + 1):
        if limit and menu[k - 1] * dear >= late:
            break
        if q[k] > q[best]:
            best = k
    return best


@kernel
def decide(
    code: int, end: float, keep: float, planned: float, counts: Array, minutes: Array, swarm: Array, prior: Array, edges: Array,
    means: Array, places: Array, shares: Array, late: float, dear: float, facts: Array, intensity: float, trend: float, odds: float,
    see_reuse: bool, see_ci: bool, limit: bool, weights: Array, sizes: Array, activation: int, keeps: Array, x: Array,
    out: Array, scratch: Array,
) -> tuple[float, float]:  # fmt: skip
    """(warm from, warm until) of a pod that became idle at `end`. late and dear: what a cold start and an idle second cost now."""
    if code == FIXED:
        return end, end + keep
    if code == PLANNED:
        return end, max(end, planned)
    if code == HISTOGRAM:
        first, last = window_of(minutes)
        return end + first, end + last
    if code == BREAK_EVEN:
        return end, end + cheapest_edge(counts, prior, edges, means, late, dear)
    if code == SWARM:
        return end, end + swarm_keep(swarm, np.floor(end / 3600.0), counts, prior, edges, means, late, dear)
    observation_into(counts, prior, places, shares, facts, intensity, trend, odds, see_reuse, see_ci, x)
    mlp_into(weights, sizes, activation, x, out, scratch)
    return end, end + keeps[best_allowed(out, keeps, late, dear, limit)]
