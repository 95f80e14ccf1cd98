"""Which node type and size a call gets: the least core-seconds in money that still meet its deadline with a margin.

    feasible(n, v):  T̂(n, v) + z·sd + cold ≤ deadline − now          cost(n, v) = v·T̂(n, v)·price

Of the feasible pairs that have room now the cheapest is taken; of those within 2 %, or within the error of an estimate, the smallest size,
then one with a warm pod, then the least loaded node. If a pair would be feasible but has no room, the call waits. If none is, the pair
with room and the least lateness is taken, unless it is expected to be late even without the margin: then the call waits, too, as long as
it could be in time on a pair that lacks room, and otherwise it is passed to the end of the queue.
"""

from __future__ import annotations

import math
from typing import Any

from armillary.kernels import loop
from armillary.scheduling.functions.knowledge.store import expected

from .policy import LEARNED, PROFILED

#: Costs within this share are ties, and so are costs that differ by less than two standard errors of learned times, or the luck of a few
#: runs would decide between sizes that cost the same. A mean with α = 0.3 keeps 0.42 of the standard deviation.
TIE, ERRORS = 0.02, 2 * 0.42
#: Outcomes beside a start.
WAIT, HOPELESS = -1, -2
#: A call is rich in slack if this share of its time suffices.
RICH = 0.8


@loop
def believed(
    policy: Any, store: Any, profile: Any, deviation: Any, f: int, t: int, k: int, size: float, hidden: float
) -> tuple[float, float]:
    """Seconds and their standard deviation, as the policy's knowledge has them."""
    if policy.knowledge == LEARNED:
        return expected(store, f, t, k, size, policy.node_factors)
    if policy.knowledge == PROFILED:
        return profile[f, t, k], deviation[f, t, k]
    return profile[f, t, k] * hidden, 0.0


@loop
def choose(
    policy: Any, store: Any, profile: Any, deviation: Any, price: Any, cores: Any, sizes: Any, f: int, size: float, hidden: float,
    slack_s: float, cold_s: float, warm_free: Any, any_free: Any, costs: Any,
) -> tuple[int, int, bool]:  # fmt: skip
    """(node type, size, warm) for a call that has `slack_s` left; WAIT or HOPELESS in place of the type.

    warm_free, any_free: for each node type the most free cores of a node with a warm pod of the function, and of any node; −1 for none.
    costs: room for the costs of feasible pairs and for their relative errors, `[2, type, size]`.
    """
    least, possible, could, fastest = math.inf, False, False, math.inf
    late_s, least_error = math.inf, 0.0
    late, late_cost, at_t, at_k, at_warm = math.inf, math.inf, -1, -1, False
    for t in range(len(cores)):
        for k in range(len(sizes)):
            costs[0, t, k] = math.inf
            if sizes[k] > cores[t]:
                continue
            time, sd = believed(policy, store, profile, deviation, f, t, k, size, hidden)
            fastest = min(fastest, time)
            need = time + policy.z * sd
            warm = sizes[k] <= warm_free[t]
            if not warm and sizes[k] > any_free[t]:
                possible = possible or need <= slack_s - policy.look_s
                could = could or time <= slack_s
                continue
            need += 0.0 if warm else cold_s
            cost = sizes[k] * time * price[t]
            if need <= slack_s:
                error = sd / time if policy.knowledge == LEARNED else 0.0
                costs[0, t, k], costs[1, t, k] = cost, error
                if cost < least:
                    least, least_error = cost, error
            elif need < late * (1 - 1e-9) or (need <= late * (1 + 1e-9) and cost < late_cost):
                late, late_cost, at_t, at_k, at_warm = need, cost, t, k, warm
                late_s = time + (0.0 if warm else cold_s)
    if least == math.inf:
        if policy.admission and fastest > slack_s:
            return HOPELESS, 0, False
        if possible or at_t < 0:
            return WAIT, 0, False
        # Whoever would be late for certain leaves the cores to others, and waits only for pairs that lack room and could be in time.
        if policy.admission and late_s > slack_s:
            return (WAIT if could else HOPELESS), 0, False
        return at_t, at_k, at_warm
    at_t, at_k, at_warm, load = -1, -1, False, 0.0
    for t in range(len(cores)):
        for k in range(len(sizes)):
            near = max(TIE, ERRORS * math.sqrt(costs[1, t, k] ** 2 + least_error**2))
            if not costs[0, t, k] <= least * (1 + near):
                continue
            warm = sizes[k] <= warm_free[t]
            free = (warm_free[t] if warm else any_free[t]) / cores[t]
            better = at_t < 0 or k < at_k or (k == at_k and ((warm and not at_warm) or (warm == at_warm and free > load)))
            if better:
                at_t, at_k, at_warm, load = t, k, warm, free
    return at_t, at_k, at_warm


@loop
def cheapest_s(
    policy: Any, store: Any, profile: Any, deviation: Any, price: Any, cores: Any, sizes: Any, f: int, size: float, hidden: float,
    slack_s: float,
) -> float:  # fmt: skip
    """Seconds at the cheapest feasible type and size, wherever there is room; the fastest where none is feasible."""
    least, answer, fastest = math.inf, math.inf, math.inf
    for t in range(len(cores)):
        for k in range(len(sizes)):
            if sizes[k] > cores[t]:
                continue
            time, sd = believed(policy, store, profile, deviation, f, t, k, size, hidden)
            fastest = min(fastest, time)
            cost = sizes[k] * time * price[t]
            if time + policy.z * sd <= slack_s and cost < least:
                least, answer = cost, time
    return answer if answer < math.inf else fastest


@loop
def explored(
    policy: Any, store: Any, cores: Any, sizes: Any, f: int, t: int, k: int, size: float, slack_s: float, free: float, draw: float
) -> int:
    """The size that is tried instead of k: now and then a neighbour, if the call is rich in slack either way."""
    chance = policy.explore / math.sqrt(max(store.own.runs[f], 1))
    if draw >= chance:
        return k
    other = k + 1 if draw < chance / 2 else k - 1
    if other < 0 or other >= len(sizes) or sizes[other] > min(free, cores[t]):
        return k
    for one in (k, other):
        time, sd = expected(store, f, t, one, size, policy.node_factors)
        if time + policy.z * sd > RICH * slack_s:
            return k
    return other


@loop
def raised_size(
    policy: Any, store: Any, profile: Any, deviation: Any, sizes: Any, f: int, t: int, k: int, size: float, hidden: float, elapsed_s: float,
    done: float, slack_s: float, free: float,
) -> tuple[int, float]:  # fmt: skip
    """(size, seconds until the end) for a running call of which a share `done` is done after `elapsed_s`; k itself if it stays.

    Quota goes up to the smallest size with which the rest is done in time, if the node has that many cores free, and never down.
    """
    time, _ = believed(policy, store, profile, deviation, f, t, k, size, hidden)
    if done <= 0 or done >= 1 or elapsed_s / done - elapsed_s <= slack_s:
        return k, max(elapsed_s / max(done, 1e-9) - elapsed_s, 0.0)
    slower = elapsed_s / (done * time)
    for other in range(k + 1, len(sizes)):
        if sizes[other] - sizes[k] > free:
            break
        faster, _ = believed(policy, store, profile, deviation, f, t, other, size, hidden)
        if (1 - done) * faster * slower <= slack_s:
            return other, (1 - done) * faster * slower
    return k, elapsed_s / done - elapsed_s
