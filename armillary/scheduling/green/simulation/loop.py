"""The cluster minute by minute: pods arrive, are planned, placed, throttled and ended; nodes boot, sleep and are drained.

Every array is written here, and all techniques go through the same lines; what they decide is in their `Policy`. A pod knows its class,
its request and its declared duration. What it will use, how long it will run and what the sun will do is known to the play alone.
"""

from __future__ import annotations

import math
from typing import Any

from armillary.kernels import loop
from armillary.scheduling.green.problem.pods import BATCH
from armillary.scheduling.green.problem.sunshine import CELL

from .placing import added_power, fits, heat, place
from .planning import add_to, awake, guess, inner, node_power, plan, replan
from .policy import BUDGET, SURPLUS, WINDOW
from .state import BOOTING, BOUND, CHECKPOINT, DONE, OFF, ON, RUNNING, SAMPLE_SLOTS, TOO_LARGE, WAITING, WINDOW_SLOTS

#: A node that throttles more than this share in ten minutes accepts less; how much less, how little at least, and what returns per hour.
THROTTLED, LESS, LEAST_KAPPA, RECOVERS = 0.01, 0.05, 0.3, 0.01
FITS = 1e-9


@inner
def _bind(g: Any, x: Any, p: int, n: int, now: int) -> None:
    """Gives a pod to a node, which boots if it sleeps."""
    x.requested[n] += g.cpu[p]
    x.estimated[n] += x.guess[p]
    x.used_memory[n] += g.mem[p]
    x.pods[n] += 1
    x.node[p] = n
    if x.status[n] == OFF:
        x.status[n] = BOOTING if g.boot[n] > 0 else ON
        x.ready[n] = now + g.boot[n]
        x.idle_since[n] = now
    x.phase[p] = BOUND if x.status[n] == BOOTING else RUNNING
    begins = x.ready[n] if x.status[n] == BOOTING else now
    if x.phase[p] == RUNNING and x.start[p] < 0:
        x.start[p] = now
    x.busy_until[n] = max(x.busy_until[n], begins + max(1.0, g.declared[p] - x.progress[p]))
    x.memory_peak[0] = max(x.memory_peak[0], x.used_memory[n] / g.memory[n])


@inner
def _release(g: Any, x: Any, p: int, now: int) -> None:
    """Takes a pod off its node."""
    n = x.node[p]
    x.requested[n] -= g.cpu[p]
    x.estimated[n] -= x.guess[p]
    x.used_memory[n] -= g.mem[p]
    x.pods[n] -= 1
    if x.pods[n] == 0:
        x.idle_since[n] = now
        x.requested[n] = x.estimated[n] = x.used_memory[n] = 0.0


@inner
def _resum(g: Any, x: Any, policy: Any) -> None:
    """Guesses of all active pods from what is known now, and the sums of nodes from scratch."""
    for n in range(len(g.cores)):
        x.requested[n] = x.estimated[n] = x.used_memory[n] = 0.0
    for i in range(x.counts[0]):
        p = x.active[i]
        x.guess[p] = guess(g, x, policy, p)
        n = x.node[p]
        x.requested[n] += g.cpu[p]
        x.estimated[n] += x.guess[p]
        x.used_memory[n] += g.mem[p]


@inner
def _nodes(g: Any, x: Any, policy: Any, now: int) -> None:
    """Booted nodes start their pods, and nodes that have been empty for long are switched off."""
    for n in range(len(g.cores)):
        if x.status[n] == BOOTING and x.ready[n] <= now:
            x.status[n] = ON
            x.idle_since[n] = now
    for i in range(x.counts[0]):
        p = x.active[i]
        if x.phase[p] == BOUND and x.status[x.node[p]] == ON:
            x.phase[p] = RUNNING
            if x.start[p] < 0:
                x.start[p] = now
    if not policy.sleep:
        return
    due = False
    for i in range(x.counts[1]):
        due = due or x.plan[x.waiting[i]] <= now + 1
    left = awake(x)
    for n in range(len(g.cores)):
        if x.status[n] == ON and x.pods[n] == 0 and now - x.idle_since[n] >= policy.idle_off and not (due and left == 1):
            x.status[n] = OFF
            left -= 1


@inner
def _drain(g: Any, x: Any, policy: Any, now: int) -> None:
    """Empties nodes that are hardly used if all their pods may be restarted and fit on other busy nodes."""
    for n in range(len(g.cores)):
        if x.status[n] != ON or x.pods[n] == 0 or heat(x, n) >= policy.drain_below or x.busy_until[n] <= now + CELL:
            continue
        moved, done = 0, True
        for i in range(x.counts[0]):
            p = x.active[i]
            if x.node[p] != n:
                continue
            if g.tier[p] < BATCH or x.phase[p] != RUNNING:
                done = False
                break
            best, most = -1, -1.0
            for m in range(len(g.cores)):
                if m != n and x.status[m] == ON and x.pods[m] > 0 and fits(g, x, policy, p, m):
                    packing = (x.estimated[m] + x.guess[p]) / g.cores[m]
                    if packing > most:
                        best, most = m, packing
            if best < 0:
                done = False
                break
            _release(g, x, p, now)
            _bind(g, x, p, best, now)
            # A pod that has moved is marked until it is known whether all pods of the node can.
            x.restarts[p] = -1 - x.restarts[p]
            moved += 1
        for i in range(x.counts[0]):
            p = x.active[i]
            if x.restarts[p] < 0:
                x.restarts[p] = -1 - x.restarts[p]
                if done:
                    x.restarts[p] += 1
                    x.progress[p] = CHECKPOINT * math.floor(x.progress[p] / CHECKPOINT)
                else:
                    _release(g, x, p, now)
                    _bind(g, x, p, n, now)


@inner
def _arrive(g: Any, x: Any, policy: Any, p: int, now: int) -> None:
    """A pod joins the queue behind those of its tier."""
    x.guess[p] = guess(g, x, policy, p)
    large = True
    for n in range(len(g.cores)):
        if g.cpu[p] <= g.cores[n] + FITS and g.mem[p] <= g.memory[n] + FITS:
            large = False
    if large:
        x.phase[p] = TOO_LARGE
        x.promised[p] = now + g.declared[p]
        return
    x.phase[p] = WAITING
    x.plan[p] = now
    if policy.when == WINDOW or policy.when == BUDGET:
        plan(g, x, policy, p, now)
    x.promised[p] = x.plan[p] + g.declared[p]
    i = x.counts[1]
    while i > 0 and g.tier[x.waiting[i - 1]] > g.tier[p]:
        x.waiting[i] = x.waiting[i - 1]
        i -= 1
    x.waiting[i] = p
    x.counts[1] += 1


@inner
def _start_due(g: Any, x: Any, policy: Any, now: int, boot: int) -> None:
    """Places the pods whose time has come, by tier and submission, and wakes nodes for those whose time is one boot away."""
    power = x.power[now - 1] if now > 0 else 0.0
    sun = g.watts[now - 1] if now > 0 else 0.0
    # No pod is tried that asks for at least as much of everything as one that found no node in this slot.
    no_cpu = no_memory = no_guess = math.inf
    kept = 0
    for i in range(x.counts[1]):
        p = x.waiting[i]
        go = x.plan[p] <= now
        if policy.when == SURPLUS and g.tier[p] >= BATCH and now < g.latest[p]:
            go = sun - power >= g.marginal * x.guess[p]
        n = -1
        early = not go and policy.sleep and x.plan[p] - boot <= now and policy.when != SURPLUS
        if go or early:
            x.guess[p] = guess(g, x, policy, p)
            if policy.when == BUDGET:
                # A pod is placed by the sun that the others leave.
                add_to(x.planned, float(x.plan[p]), x.plan[p] + g.declared[p], -x.plan_w[p])
            if early:
                if place(g, x, policy, p, now, False, True) < 0:
                    n = place(g, x, policy, p, now, True, False)
            elif g.cpu[p] < no_cpu or g.mem[p] < no_memory or x.guess[p] < no_guess:
                n = place(g, x, policy, p, now, True, True)
                if n < 0:
                    no_cpu, no_memory, no_guess = g.cpu[p], g.mem[p], x.guess[p]
            if policy.when == BUDGET and n < 0:
                add_to(x.planned, float(x.plan[p]), x.plan[p] + g.declared[p], x.plan_w[p])
        if n < 0:
            x.waiting[kept] = p
            kept += 1
            continue
        watts = added_power(g, x, p, n)
        power += watts
        if policy.when == BUDGET:
            add_to(x.planned, float(now), now + g.declared[p], watts)
        _bind(g, x, p, n, now)
        x.active[x.counts[0]] = p
        x.counts[0] += 1
    x.counts[1] = kept


@inner
def _run(g: Any, x: Any, policy: Any, now: int) -> None:
    """One minute: usage, throttling, progress and power."""
    for n in range(len(g.cores)):
        x.demand[n] = 0.0
    for i in range(x.counts[0]):
        p = x.active[i]
        if x.phase[p] == RUNNING:
            x.demand[x.node[p]] += _usage(g, x, p)
    i = 0
    sample = now % SAMPLE_SLOTS == 0
    while i < x.counts[0]:
        p = x.active[i]
        i += 1
        if x.phase[p] != RUNNING:
            continue
        n = x.node[p]
        given = 1.0 if x.demand[n] <= g.cores[n] else g.cores[n] / x.demand[n]
        if sample and g.cpu[p] > 0:
            c = g.klass[p]
            ratio = _usage(g, x, p) * given / g.cpu[p]
            x.seen[c] += 1
            off = ratio - x.mean[c]
            x.mean[c] += off / x.seen[c]
            x.squares[c] += off * (ratio - x.mean[c])
        x.progress[p] += given if g.tier[p] >= BATCH else 1.0
        if x.progress[p] >= g.duration[p] - FITS:
            x.phase[p] = DONE
            x.end[p] = now + 1
            _release(g, x, p, now + 1)
            i -= 1
            x.counts[0] -= 1
            x.active[i] = x.active[x.counts[0]]
    for n in range(len(g.cores)):
        want = x.demand[n]
        got = min(want, g.cores[n])
        x.heat[n, now % WINDOW_SLOTS] = got / g.cores[n] if x.status[n] == ON else 0.0
        x.wanted[now] += want
        x.missing[now] += want - got
        x.lost[n] += want - got
        x.demanded[n] += want
        if x.status[n] == OFF:
            x.power[now] += g.off[n]
        elif x.status[n] == BOOTING:
            x.power[now] += g.boot_w[n]
        else:
            x.power[now] += node_power(g, n, got)
    x.awake[now] = awake(x)


@inner
def _usage(g: Any, x: Any, p: int) -> float:
    """Cores that a pod wants at its present progress."""
    first, last = g.offsets[p], g.offsets[p + 1] - 1
    return float(g.usage[min(last, first + int(x.progress[p] / g.step))])


@inner
def _heed_throttling(g: Any, x: Any, policy: Any) -> None:
    """Every ten minutes: nodes that throttled accept less, and quiet ones regain a little per hour."""
    for n in range(len(g.cores)):
        if x.demanded[n] > 0 and x.lost[n] > THROTTLED * x.demanded[n]:
            x.kappa[n] = max(LEAST_KAPPA, x.kappa[n] - LESS)
            x.quiet[n] = 0
        else:
            x.quiet[n] += WINDOW_SLOTS
            if x.quiet[n] >= 60:
                x.quiet[n] -= 60
                x.kappa[n] = min(policy.kappa, x.kappa[n] + RECOVERS)
        x.lost[n] = x.demanded[n] = 0.0


@loop
def advance(g: Any, x: Any, policy: Any, slots: int) -> None:
    """Plays all slots."""
    boot = 0
    for n in range(len(g.boot)):
        boot = max(boot, g.boot[n])
    following = 0
    planned = policy.when == WINDOW or policy.when == BUDGET
    for now in range(slots):
        _nodes(g, x, policy, now)
        if now % SAMPLE_SLOTS == 0:
            _resum(g, x, policy)
        if now % CELL == 0:
            if policy.consolidate and now > 0:
                _drain(g, x, policy, now)
            if planned:
                replan(g, x, policy, now)
        while following < len(g.submit) and g.submit[following] <= now:
            _arrive(g, x, policy, following, now)
            following += 1
        _start_due(g, x, policy, now, boot)
        _run(g, x, policy, now)
        if (now + 1) % WINDOW_SLOTS == 0:
            _heed_throttling(g, x, policy)
