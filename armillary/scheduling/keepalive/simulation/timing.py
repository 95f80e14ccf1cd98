"""How long one decision takes: each policy on the same recorded states."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.kernels import loop
from armillary.scheduling.faas import Invocations
from armillary.scheduling.faas.pods import grown, pop, push, value_at
from armillary.scheduling.keepalive.workload import KeepAliveWork

from .decisions import COUNTS, MINUTES, OUTPUTS, SWARM_STATE, begin_swarm, decide, observe_minute
from .play import Policy, arguments
from .reuse import EDGES, observe

Array = npt.NDArray[Any]
STATES, TURNS = 2000, 3


@dataclass(frozen=True)
class States:
    """What policies know at some decisions: of which function, when, and its histograms."""

    function: npt.NDArray[np.int64]
    end: npt.NDArray[np.float64]
    counts: npt.NDArray[np.float64]
    minutes: npt.NDArray[np.float64]


def recorded(trace: Invocations, states: int = STATES) -> States:
    """The states at evenly spaced invocations of a trace."""
    n = len(trace)
    wanted = np.zeros(n, bool)
    wanted[np.unique(np.linspace(0, max(n - 1, 0), min(states, n)).astype(np.int64))] = True
    m = int(wanted.sum())
    found = States(np.zeros(m, np.int64), np.zeros(m), np.zeros((m, COUNTS)), np.zeros((m, MINUTES + 3)))
    _record(trace.offsets, trace.arrival_s, trace.duration_s, EDGES, wanted, found.function, found.end, found.counts, found.minutes)
    return found


def decide_us(work: KeepAliveWork, policy: Policy, states: States, trace: Invocations) -> float:
    """Microseconds per decision, the best of three turns over all states."""
    (code, _, _, _, _, keep, _, times, values, _, steps, _, _, _, _, prior, edges, means, places, shares, menu, late, dear, facts, odds,
     see_reuse, see_ci, limit, usual, *network) = arguments(work, policy, work.lam, trace)  # fmt: skip
    spent = []
    for _ in range(TURNS):
        start = time.perf_counter()
        _decide_all(
            code, keep, states.function, states.end, states.counts, states.minutes, times, values, steps, prior, edges, means, places,
            shares, menu, late, dear, facts, odds, see_reuse, see_ci, limit, usual, *network,
        )  # fmt: skip
        spent.append(time.perf_counter() - start)
    return 1e6 * min(spent) / max(1, len(states.end))


@loop
def _record(
    offsets: Array, arrival: Array, duration: Array, edges: Array, wanted: Array, function: Array, ends: Array, all_counts: Array,
    all_minutes: Array,
) -> None:  # fmt: skip
    stack, busy = np.empty((8, 2)), np.empty((8, 2))
    counts, minutes = np.zeros(COUNTS), np.zeros(MINUTES + 3)
    row = 0
    for f in range(offsets.shape[0] - 1):
        waiting = running = 0
        counts[:] = 0
        minutes[:] = 0
        stop = offsets[f + 1]
        for i in range(offsets[f], stop + 1):
            t = arrival[i] if i < stop else np.inf
            while running and busy[0, 0] <= t:
                end, which = busy[0, 0], int(busy[0, 1])
                pop(busy, running)
                running -= 1
                if wanted[which]:
                    function[row], ends[row] = f, end
                    all_counts[row], all_minutes[row] = counts, minutes
                    row += 1
                if waiting == stack.shape[0]:
                    stack = grown(stack)
                stack[waiting, 0], stack[waiting, 1] = end, which
                waiting += 1
            if i == stop:
                break
            if waiting:
                waiting -= 1
                observe(counts, edges, t - stack[waiting, 0])
                observe_minute(minutes, t - stack[waiting, 0])
            if running == busy.shape[0]:
                busy = grown(busy)
            push(busy, running, t + duration[i], i)
            running += 1


@loop
def _decide_all(
    code: int, keep: float, function: Array, ends: Array, counts: Array, minutes: Array, times: Array, values: Array, steps: Array,
    prior: Array, edges: Array, means: Array, places: Array, shares: Array, menu: Array, late: Array, dear: Array, facts: Array,
    odds: float, see_reuse: bool, see_ci: bool, limit: bool, usual: float, weights: Array, sizes: Array, activation: int,
) -> float:  # fmt: skip
    swarm = np.zeros(SWARM_STATE)
    x, out, scratch = np.zeros(facts.shape[1] + 11, np.float32), np.zeros(OUTPUTS, np.float32), np.empty(2 * sizes.max(), np.float32)
    total, before = 0.0, -1
    for i in range(ends.shape[0]):
        f, end = function[i], ends[i]
        if f != before:
            begin_swarm(swarm, f)
            before = f
        now = value_at(times, values, end)
        trend = (now - value_at(times, values, end - 3600.0)) / 3000.0
        _, until = decide(
            code, end, keep, end, counts[i], minutes[i], swarm, prior, edges, means, places, shares, late[f],
            dear[f] * (now if see_ci else usual), facts[f], value_at(times, steps, end), trend, odds, see_reuse, see_ci, limit, weights,
            sizes, activation, menu, x, out, scratch,
        )  # fmt: skip
        total += until - end
    return total
