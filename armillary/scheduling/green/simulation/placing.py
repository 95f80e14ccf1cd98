"""Which node takes a pod: what fits, and the scores of kube-scheduler and of GreenK8s."""

from __future__ import annotations

import math
from typing import Any

from armillary.kernels import loop

from .planning import covered, free_green, inner, node_power
from .policy import GREEN, LEAST
from .state import OFF, WINDOW_SLOTS

#: Cores and gigabytes below which a difference is one of rounding.
FITS = 1e-9


@loop
def least_allocated(cores: float, memory: float, requested: float, used: float) -> float:
    """NodeResourcesFit with LeastAllocated: the mean over CPU and memory of the free share, in whole points from 0 to 100."""
    cpu = math.floor(100 * (cores - requested) / cores + FITS)
    ram = math.floor(100 * (memory - used) / memory + FITS)
    return math.floor((max(0.0, cpu) + max(0.0, ram)) / 2)


@loop
def most_allocated(cores: float, memory: float, requested: float, used: float) -> float:
    """NodeResourcesFit with MostAllocated: the mean over CPU and memory of the requested share, in whole points from 0 to 100."""
    cpu, ram = math.floor(100 * requested / cores + FITS), math.floor(100 * used / memory + FITS)
    return math.floor((min(100.0, cpu) + min(100.0, ram)) / 2)


@loop
def balanced(cores: float, memory: float, requested: float, used: float) -> float:
    """NodeResourcesBalancedAllocation: 100 points less the deviation of the two requested shares."""
    cpu, ram = min(1.0, requested / cores), min(1.0, used / memory)
    return math.floor(100 * (1 - abs(cpu - ram) / 2) + FITS)


@inner
def fits(g: Any, x: Any, policy: Any, p: int, n: int) -> bool:
    """Whether a node has room for a pod; memory is never oversubscribed."""
    if x.used_memory[n] + g.mem[p] > g.memory[n] + FITS:
        return False
    if not policy.oversubscribe or x.pods[n] == 0:
        return bool(x.requested[n] + g.cpu[p] <= g.cores[n] + FITS)
    if x.requested[n] + g.cpu[p] > policy.ratio * g.cores[n] + FITS:
        return False
    return bool(x.estimated[n] + x.guess[p] <= x.kappa[n] * g.cores[n] + FITS)


@inner
def _kubernetes(g: Any, x: Any, policy: Any, p: int, asleep: bool) -> int:
    """The node that kube-scheduler prefers among those that are awake, or among those that sleep; the first of several; −1 for none."""
    best, most = -1, -math.inf
    for n in range(len(g.cores)):
        if (x.status[n] == OFF) != asleep or not fits(g, x, policy, p, n):
            continue
        requested, used = x.requested[n] + g.cpu[p], x.used_memory[n] + g.mem[p]
        if policy.place == LEAST:
            value = least_allocated(g.cores[n], g.memory[n], requested, used) + balanced(g.cores[n], g.memory[n], requested, used)
        else:
            value = most_allocated(g.cores[n], g.memory[n], requested, used)
        if value > most:
            best, most = n, value
    return best


@inner
def heat(x: Any, n: int) -> float:
    """Mean utilisation of a node over the last ten minutes."""
    total = 0.0
    for k in range(WINDOW_SLOTS):
        total += x.heat[n, k]
    return total / WINDOW_SLOTS


@inner
def added_power(g: Any, x: Any, p: int, n: int) -> float:
    """Watts that a pod adds to a node while it runs; a sleeping node's idle power counts."""
    if x.status[n] == OFF:
        return node_power(g, n, x.guess[p]) - g.off[n]
    if g.exponent[n] == 1.0 and x.estimated[n] + x.guess[p] <= g.cores[n]:
        # The same to the last bit on all nodes of a type.
        return float((g.peak[n] - g.idle[n]) * (x.guess[p] / g.cores[n]))
    return node_power(g, n, x.estimated[n] + x.guess[p]) - node_power(g, n, x.estimated[n])


@inner
def added_energy(g: Any, x: Any, p: int, n: int, now: int) -> float:
    """Watt-slots that a pod adds: its own power, the boot of a sleeping node, and the idle power of a node that it keeps awake longer."""
    slots = max(1.0, g.declared[p] - x.progress[p])
    energy = added_power(g, x, p, n) * slots
    if x.status[n] == OFF:
        return energy + g.boot[n] * g.boot_w[n]
    longer = max(0.0, now + slots - max(float(now), x.busy_until[n]))
    return energy + (g.idle[n] - g.off[n]) * longer


@inner
def _green(g: Any, x: Any, policy: Any, p: int, now: int, asleep: bool, awake: bool) -> int:
    """The node with the best green score; −1 for none.

    score = w₁·(1 − ΔE/ΔE_max) + w₂·green cover + w₃·packing + w₄·(1 − heat), over the nodes with room. (Ten times as much is GreenK8s's.)
    """
    largest = 0.0
    for n in range(len(g.cores)):
        if (asleep if x.status[n] == OFF else awake) and fits(g, x, policy, p, n):
            largest = max(largest, added_energy(g, x, p, n, now))
    best, most = -1, -math.inf
    free_green(x, policy, now)
    slots = max(1.0, g.declared[p] - x.progress[p])
    # Nodes of a type stand together and add the same power, so the cover of the last one is kept, awake and asleep.
    known_on = known_off = -1.0
    cover_on = cover_off = 0.0
    for n in range(len(g.cores)):
        sleeps = x.status[n] == OFF
        if not (asleep if sleeps else awake) or not fits(g, x, policy, p, n):
            continue
        watts = added_power(g, x, p, n)
        if sleeps:
            if watts != known_off:
                known_off, cover_off = watts, covered(x, now, slots, watts)
            cover = cover_off
        else:
            if watts != known_on:
                known_on, cover_on = watts, covered(x, now, slots, watts)
            cover = cover_on
        energy = 1 - added_energy(g, x, p, n, now) / largest if largest > 0 else 1.0
        packing = min(1.0, (x.estimated[n] + x.guess[p]) / g.cores[n])
        w = policy.weights
        value = w[0] * energy + w[1] * cover + w[2] * packing + w[3] * (1 - heat(x, n))
        if value > most + FITS:
            best, most = n, value
    return best


@inner
def place(g: Any, x: Any, policy: Any, p: int, now: int, asleep: bool, awake: bool) -> int:
    """The node that takes a pod now, among those that sleep, those that are awake, or both; −1 for none."""
    if policy.place == GREEN:
        return _green(g, x, policy, p, now, asleep, awake)
    found = _kubernetes(g, x, policy, p, False) if awake else -1
    return _kubernetes(g, x, policy, p, True) if found < 0 and asleep else found
