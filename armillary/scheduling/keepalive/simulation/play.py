"""One policy on one trace: decisions inside a compiled loop, pods as in `armillary.scheduling.faas`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary.kernels import loop
from armillary.scheduling.energy import JOULES_PER_KWH, Carbon
from armillary.scheduling.faas import Invocations, Played
from armillary.scheduling.faas.pods import check_rules, grown, latency_bin, leave, pop, push, serve, value_at

from .decisions import COUNTS, HISTOGRAM, MINUTES, OUTPUTS, PLANNED, SWARM_STATE, begin_swarm, decide, observe_minute
from .reuse import EDGES, KEEPS, MEANS, PLACES, SHARES, observe

if TYPE_CHECKING:
    from armillary.scheduling.keepalive.workload import KeepAliveWork

Array = npt.NDArray[Any]
#: λ enters the network as log-odds between these.
MOST_ODDS = 6.0
#: Carbon intensities below this enter the network as if they were this, in g/kWh.
LEAST_INTENSITY = 0.1
_NO_WEIGHTS = (np.zeros(1, np.float32), np.array([1, 1], np.int64), 0)


@dataclass(frozen=True)
class Policy:
    """How a pod's keep-alive is decided: a code of `decisions` and what that code needs."""

    code: int
    #: For FIXED: seconds.
    keep_s: float = 0.0
    #: For PLANNED: gives the time until which the pod of each invocation is warm.
    plan: Callable[[Invocations], npt.NDArray[np.float64]] | None = field(default=None, compare=False)
    #: For NETWORK: the compiled weights, and which inputs it sees.
    network: tuple[Array, Array, int] = field(default=_NO_WEIGHTS, compare=False)
    see_reuse: bool = True
    see_ci: bool = True
    #: Whether waits end when idling has cost as much as a cold start.
    limit: bool = True


@dataclass(frozen=True)
class Prices:
    """What decisions cost at a λ, for the functions of one trace."""

    #: (1 − λ)·L/L̄ of a cold start, and λ·P/C̄ of an idle second at 1 g/kWh.
    late: npt.NDArray[np.float64]
    dear: npt.NDArray[np.float64]
    #: ln(L/L̄), ln vCPU and ln GB, [functions, 3].
    facts: npt.NDArray[np.float64]
    #: ln of a watt-minute's carbon over C̄ is ln(intensity) + this.
    offset: float
    odds: float

    @staticmethod
    def of(work: KeepAliveWork, trace: Invocations, lam: float) -> Prices:
        """The prices of a trace's functions, in units of what static-60 cost on the training day."""
        known = work.knowledge
        scale = JOULES_PER_KWH * known.carbon_g
        tiny = 1e-6
        facts = np.log(np.maximum(np.stack([trace.cold_s / known.latency_s, trace.vcpu, trace.memory_gb], 1), tiny))
        return Prices(
            (1 - lam) * trace.cold_s / known.latency_s, lam * work.watts(trace) / scale, facts, math.log(60 / scale), odds_of(lam)
        )


def intensities(carbon: Carbon, prices: Prices) -> npt.NDArray[np.float64]:
    """What the network sees of each step of a grid: ln of a watt-minute's carbon over C̄."""
    found: npt.NDArray[np.float64] = np.log(np.maximum(carbon.values, LEAST_INTENSITY)) + prices.offset
    return found


def odds_of(lam: float) -> float:
    """ln(λ/(1 − λ)), cut at ±6."""
    if lam <= 0 or lam >= 1:
        return -MOST_ODDS if lam <= 0 else MOST_ODDS
    return min(MOST_ODDS, max(-MOST_ODDS, math.log(lam / (1 - lam))))


def play(work: KeepAliveWork, policy: Policy, lam: float, keeps: Array | None = None) -> Played:
    """Plays all of the work with a policy at a λ. `keeps` [invocations] receives the keep-alives (the time until warm, of a plan)."""
    check_rules(work.reuse, work.startup)
    parts = []
    for trace in work.parts():
        played = Played.empty(trace.functions)
        _play(*arguments(work, policy, lam, trace), *played.arrays, np.empty(0) if keeps is None else keeps)
        parts.append(played)
    return parts[0] if len(parts) == 1 else Played.joined(parts)


def arguments(work: KeepAliveWork, policy: Policy, lam: float, trace: Invocations) -> tuple[Any, ...]:
    """What the compiled loop takes before its results."""
    prices = Prices.of(work, trace, lam)
    planned = np.zeros(0) if policy.plan is None else policy.plan(trace)
    return (
        policy.code, trace.offsets, trace.arrival_s, trace.duration_s, trace.cold_s, policy.keep_s, planned, work.carbon.times_s,
        work.carbon.values, work.carbon.cumulative, intensities(work.carbon, prices),
        work.reuse == "lru" and policy.code != PLANNED, work.startup == "busy", work.count_from_s, trace.horizon_s, work.knowledge.prior,
        EDGES, MEANS, PLACES, SHARES, KEEPS, prices.late, prices.dear, prices.facts, prices.odds, policy.see_reuse, policy.see_ci,
        policy.limit, work.knowledge.intensity, *policy.network,
    )  # fmt: skip


@loop
def _play(
    code: int, offsets: Array, arrival: Array, duration: Array, cold: Array, keep: float, planned: Array, times: Array, values: Array,
    cumulative: Array, steps: Array, oldest: bool, holds: bool, first: float, last: float, prior: Array, edges: Array,
    means: Array, places: Array, shares: Array, menu: Array, late: Array, dear: Array, facts: Array, odds: float, see_reuse: bool,
    see_ci: bool, limit: bool, usual: float, weights: Array, sizes: Array, activation: int, invocations: Array, colds: Array, idle: Array,
    weighted: Array, latency: Array, latencies: Array, keeps: Array,
) -> None:  # fmt: skip
    pods, busy, stack, sums = np.empty((8, 2)), np.empty((8, 2)), np.empty((8, 1)), np.zeros(2)
    counts, minutes, swarm = np.zeros(COUNTS), np.zeros(MINUTES + 3), np.zeros(SWARM_STATE)
    x, out = np.zeros(facts.shape[1] + 11, np.float32), np.zeros(OUTPUTS, np.float32)
    scratch = np.empty(2 * sizes.max(), np.float32)
    for f in range(offsets.shape[0] - 1):
        waiting = running = seen = 0
        sums[:] = 0
        counts[:] = 0
        minutes[:] = 0
        begin_swarm(swarm, f)
        stop = offsets[f + 1]
        for i in range(offsets[f], stop + 1):
            # After the last invocation, the pods that still run end too.
            t = arrival[i] if i < stop else np.inf
            while running and busy[0, 0] <= t:
                end, which = busy[0, 0], int(busy[0, 1])
                pop(busy, running)
                running -= 1
                now = value_at(times, values, end)
                trend = (now - value_at(times, values, end - 3600.0)) / 3000.0
                begin, until = decide(
                    code, end, keep, planned[which] if code == PLANNED else 0.0, counts, minutes, swarm, prior, edges, means, places,
                    shares, late[f], dear[f] * (now if see_ci else usual), facts[f], value_at(times, steps, end), trend, odds, see_reuse,
                    see_ci, limit, weights, sizes, activation, menu, x, out, scratch,
                )  # fmt: skip
                if keeps.shape[0]:
                    keeps[which] = until - end
                if waiting == pods.shape[0]:
                    pods = grown(pods)
                pods[waiting, 0], pods[waiting, 1] = begin, until
                waiting += 1
                if seen == stack.shape[0]:
                    stack = grown(stack)
                stack[seen, 0] = end
                seen += 1
            if i == stop:
                break
            if seen:
                seen -= 1
                gap = t - stack[seen, 0]
                if code == HISTOGRAM:
                    observe_minute(minutes, gap)
                elif code > HISTOGRAM:
                    observe(counts, edges, gap)
            waiting, warm = serve(pods, waiting, t, oldest, sums, times, values, cumulative, first, last)
            taken = duration[i] if warm else cold[f] + duration[i]
            if t >= first:
                invocations[f] += 1
                latency[f] += taken
                latencies[latency_bin(taken)] += 1
                if not warm:
                    colds[f] += 1
            if running == busy.shape[0]:
                busy = grown(busy)
            push(busy, running, t + (taken if holds else duration[i]), i)
            running += 1
        leave(pods, waiting, sums, times, values, cumulative, first, last)
        idle[f] += sums[0]
        weighted[f] += sums[1]
