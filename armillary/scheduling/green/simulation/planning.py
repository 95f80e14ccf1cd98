"""How much of the sun is still free, and when a pod that may wait makes the most of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from armillary.kernels import loop
from armillary.scheduling.green.problem.pods import BATCH
from armillary.scheduling.green.problem.sunshine import AHEAD, CELL

from .policy import BUDGET
from .state import BOOTING, KNOWN, OFF, ON

#: Parts of the loop are called from compiled code alone, and what lets Python call them takes most of the compilation.
inner = loop(no_cpython_wrapper=True, no_cfunc_wrapper=True)

#: A later start must be better by this much, in shares of the pod's energy, so that ties go to the earliest.
BETTER = 1e-9


@inner
def guess(g: Any, x: Any, policy: Any, p: int) -> float:
    """ũ = min(request, mean + z·sd) cores of a pod, from what its class used so far; the request until ten samples exist."""
    c = g.klass[p]
    if not policy.oversubscribe or x.seen[c] < KNOWN:
        return float(g.cpu[p])
    deviation = math.sqrt(x.squares[c] / x.seen[c])
    return float(min(g.cpu[p], g.cpu[p] * (x.mean[c] + policy.z[g.tier[p]] * deviation)))


@inner
def node_power(g: Any, n: int, cores: float) -> float:
    """Watts of an awake node with so many busy cores."""
    u = min(1.0, max(0.0, cores / g.cores[n]))
    share = u if g.exponent[n] == 1.0 else u ** g.exponent[n]
    return float(g.idle[n] + (g.peak[n] - g.idle[n]) * share)


@inner
def add_to(row: Any, first: float, last: float, amount: float) -> None:
    """Adds an amount from one slot to another to a row of cells."""
    cell = int(first) // CELL
    while cell < len(row) and cell * CELL < last:
        share = min(last, (cell + 1.0) * CELL) - max(first, float(cell * CELL))
        if share > 0:
            row[cell] += amount * share / CELL
        cell += 1


@inner
def free_green(x: Any, policy: Any, now: int) -> None:
    """G = max(0, forecast − planned) in each cell from now on."""
    cell = now // CELL
    for j in range(AHEAD):
        x.budget[j] = max(0.0, policy.forecast[cell, j] - x.planned[cell + j])


@inner
def _until(sums: Any, slot: float) -> float:
    """A prefix sum over cells at a slot after the beginning of the present cell."""
    place = min(max(slot / CELL, 0.0), float(AHEAD))
    j = min(int(place), AHEAD - 1)
    return float(sums[j] + (place - j) * (sums[j + 1] - sums[j]))


@inner
def covered(x: Any, now: int, slots: float, watts: float) -> float:
    """The share of a power from now on that the free sun covers."""
    if watts <= 0 or slots <= 0:
        return 0.0
    x.sunny[0] = 0.0
    for j in range(AHEAD):
        x.sunny[j + 1] = x.sunny[j] + min(x.budget[j], watts)
    begin = float(now % CELL)
    return (_until(x.sunny, begin + slots) - _until(x.sunny, begin)) / (watts * slots / CELL)


@inner
def _marginal(g: Any, policy: Any, cores: float) -> tuple[float, float, float]:
    """Watts that a pod adds on an awake node and on one that wakes for it, and the cores that the latter brings.

    Both are of the node type that adds least.
    """
    shared, woken, brings = math.inf, math.inf, 0.0
    for n in g.kinds:
        if cores > g.cores[n]:
            continue
        own = node_power(g, n, cores) - g.idle[n]
        shared = min(shared, own)
        if own + g.idle[n] - g.off[n] < woken:
            woken, brings = own + g.idle[n] - g.off[n], policy.kappa * g.cores[n]
    return shared, woken, brings


@inner
def plan(g: Any, x: Any, policy: Any, p: int, now: int) -> None:
    """Chooses a start for a waiting pod, now or at the beginning of a later cell, and adds its power to the plan.

    With G the free sun and ΔP the pod's marginal power, which is higher where a node must wake for it: the start with the least brown
    energy Σ max(0, ΔP − G), plus a share of the covered energy Σ min(ΔP, G) for each hour of delay. Ties go to the earliest.
    """
    cores, cell, slots = guess(g, x, policy, p), now // CELL, g.declared[p]
    begin = now - now % CELL
    budgeted = policy.when == BUDGET
    shared, woken, brings = _marginal(g, policy, cores)
    x.brown[0] = x.sunny[0] = 0.0
    for j in range(AHEAD):
        watts = shared if x.awake_cores[cell + j] - x.used_cores[cell + j] >= cores else woken
        sun = max(0.0, policy.forecast[cell, j] - x.planned[cell + j]) if budgeted else policy.forecast[cell, j]
        x.brown[j + 1] = x.brown[j] + max(0.0, watts - sun) if budgeted else 0.0
        x.sunny[j + 1] = x.sunny[j] + (min(sun, watts) if budgeted else sun)
    best = now
    if g.tier[p] >= BATCH and g.latest[p] > now:
        most, slot = -math.inf, now
        while slot <= g.latest[p] and slot - begin < AHEAD * CELL:
            sun = _until(x.sunny, slot - begin + slots) - _until(x.sunny, float(slot - begin))
            if budgeted:
                value = -(_until(x.brown, slot - begin + slots) - _until(x.brown, float(slot - begin)))
                value -= policy.discount * (slot - now) / 60.0 * sun
            else:
                value = sun
            if value > most + BETTER * woken * slots / CELL:
                best, most = slot, value
            slot = slot - slot % CELL + CELL
    x.plan[p] = best
    if not budgeted:
        return
    # Pods that start now count too, or all that wait would see the same sun and start together.
    first, last, total = float(best), best + slots, 0.0
    c = best // CELL
    while c < len(x.planned) and c * CELL < last:
        share = (min(last, (c + 1.0) * CELL) - max(first, float(c * CELL))) / CELL
        watts = shared if x.awake_cores[c] - x.used_cores[c] >= cores else woken
        if watts > shared:
            x.awake_cores[c] += brings
        x.used_cores[c] += cores * share
        x.planned[c] += watts * share
        total += watts * share
        c += 1
    x.plan_w[p] = total * CELL / slots


@inner
def replan(g: Any, x: Any, policy: Any, now: int) -> None:
    """Plans the power of the coming day from scratch, and chooses the starts of all pods that wait for the sun again."""
    cell = now // CELL
    for j in range(cell, min(len(x.planned), cell + AHEAD + 1)):
        x.planned[j] = x.used_cores[j] = x.awake_cores[j] = 0.0
    begin, end = float(now), float((cell + AHEAD) * CELL)
    for n in range(len(g.cores)):
        x.busy_until[n] = begin
    for i in range(x.counts[0]):
        p = x.active[i]
        n = x.node[p]
        left = max(1.0, g.declared[p] - x.progress[p])
        x.busy_until[n] = max(x.busy_until[n], begin + left)
        add_to(x.planned, begin, begin + left, (g.peak[n] - g.idle[n]) * x.guess[p] / g.cores[n])
        add_to(x.used_cores, begin, begin + left, x.guess[p])
    for n in range(len(g.cores)):
        if x.status[n] == OFF:
            add_to(x.planned, begin, end, g.off[n])
        else:
            stop = x.busy_until[n] + policy.idle_off if policy.sleep else end
            add_to(x.planned, begin, stop, g.idle[n])
            add_to(x.planned, stop, end, g.off[n])
            add_to(x.awake_cores, begin, stop if x.busy_until[n] > begin or not policy.sleep else begin, x.kappa[n] * g.cores[n])
    # Pods that need much energy choose first, as in bin packing, and small ones fill what is left.
    many = x.counts[1]
    for i in range(many):
        p = x.waiting[i]
        x.key[i] = -g.declared[p] * g.cpu[p]
    for i in np.argsort(x.key[:many], kind="mergesort"):
        plan(g, x, policy, x.waiting[i], now)


@inner
def awake(x: Any) -> int:
    """Nodes that are on or about to be."""
    many = 0
    for n in range(len(x.status)):
        if x.status[n] == ON or x.status[n] == BOOTING:
            many += 1
    return many
