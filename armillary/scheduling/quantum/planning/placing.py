"""Which QPUs a job gets: those with the most free qubits, or those whose links suit its cut.

A set of QPUs is filled in the order of free qubits, so the cut is between few and unequal blocks. Among sets of the smallest possible size,
and of one more, `best_sets` takes those with the least Σ w_ab · pair_ab over the gates w_ab between the blocks on a and b, where pair_ab
is the mean time of a pair. In sets of up to four, blocks may change places if there is room.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from armillary.scheduling.quantum.circuits.circuit import Circuit, Ints

if TYPE_CHECKING:
    from .planner import Placement, Planner

#: Seconds of waiting, the number of the set, its QPUs and their sizes.
Weighed = tuple[float, int, tuple[int, ...], tuple[int, ...]]
#: Sets of QPUs up to which all are weighed, ways to place blocks up to which all are tried, and links from which larger sets are grown.
MOST_SETS, MOST_ORDERS, BEST_LINKS = 2000, 24, 32


def on_most_free(planner: Planner, circuit: Circuit, free: Sequence[int]) -> Placement | None:
    """The QPUs with the most free qubits, as few as possible; None if the job does not fit."""
    order = _by_free(free)
    sizes = _filled([free[q] for q in order], circuit.qubits)
    return None if sizes is None else planner.placement(circuit, order[: len(sizes)], sizes)


def on_best_links(planner: Planner, circuit: Circuit, free: Sequence[int]) -> Placement | None:
    """The QPUs whose links suit the job best; None if it does not fit."""
    found = best_sets(planner, circuit, free, 1)
    return found[0] if found else None


def best_sets(planner: Planner, circuit: Circuit, free: Sequence[int], many: int) -> list[Placement]:
    """The best placements, the least waiting for pairs first, at most `many`."""
    least = smallest_set(circuit, free)
    if not least:
        return []
    order = _by_free(free)
    found: list[Weighed] = []
    # No set of two is better than one QPU.
    for size in (least, least + 1) if least > 1 else (least,):
        if size <= len(order):
            found += _weighed(planner, circuit, _sets(planner, order, size), np.array(free), many)
    found.sort(key=lambda one: one[:2])
    return [planner.placement(circuit, qpus, sizes) for _, _, qpus, sizes in found[:many]]


def sets_of_size(planner: Planner, circuit: Circuit, free: Sequence[int], size: int) -> list[Placement]:
    """The placements on exactly `size` QPUs that are weighed, the least waiting for pairs first."""
    order = _by_free(free)
    found = _weighed(planner, circuit, _sets(planner, order, size), np.array(free), MOST_SETS) if size <= len(order) else []
    return [planner.placement(circuit, qpus, sizes) for _, _, qpus, sizes in sorted(found, key=lambda one: one[:2])]


def smallest_set(circuit: Circuit, free: Sequence[int]) -> int:
    """The number of QPUs that the job needs at least; 0 if it does not fit."""
    return len(_filled([free[q] for q in _by_free(free)], circuit.qubits) or ())


def _sets(planner: Planner, order: list[int], size: int) -> Ints:
    """Sets of QPUs, each in the order of free qubits: all of them if they are few."""
    if math.comb(len(order), size) <= MOST_SETS:
        found: Ints = np.array(order, np.int64)[_combinations(len(order), size)]
        return found
    return _grown(planner, order, size)


def _by_free(free: Sequence[int]) -> list[int]:
    return sorted((q for q in range(len(free)) if free[q] > 0), key=lambda q: -free[q])


def _filled(free: Sequence[int], qubits: int) -> list[int] | None:
    """How many of the qubits each QPU takes when they are filled one after the other."""
    sizes = []
    for room in free:
        if qubits <= 0:
            break
        sizes.append(min(room, qubits))
        qubits -= sizes[-1]
    return sizes if qubits <= 0 else None


@functools.lru_cache(maxsize=256)
def _combinations(of: int, size: int) -> Ints:
    return np.array(list(itertools.combinations(range(of), size)), np.int64).reshape(-1, size)


def _grown(planner: Planner, order: list[int], size: int) -> Ints:
    """Sets that grow from each of the best links by the QPU nearest to all that are there."""
    apart = planner.pair_s
    links = sorted((float(apart[a, b]), a, b) for i, a in enumerate(order) for b in order[i + 1 :])[:BEST_LINKS]
    sets = {tuple(order[:size])}
    rank = {q: i for i, q in enumerate(order)}
    for _, a, b in links:
        chosen = [a, b]
        far = apart[a] + apart[b]
        while len(chosen) < size:
            q = min((q for q in order if q not in chosen), key=lambda q: (float(far[q]), rank[q]))
            chosen.append(q)
            far = far + apart[q]
        sets.add(tuple(sorted(chosen, key=rank.__getitem__)))
    return np.array(sorted(sets, key=lambda s: [rank[q] for q in s]), np.int64)


def _weighed(planner: Planner, circuit: Circuit, sets: Ints, free: Ints, many: int) -> list[Weighed]:
    """(seconds, set number, QPUs, sizes) of the best sets that hold the job and of which every QPU is needed."""
    room = free[sets]
    before = np.cumsum(room, 1) - room
    sizes = np.minimum(room, np.maximum(circuit.qubits - before, 0))
    usable = np.flatnonzero((sizes.sum(1) == circuit.qubits) & (sizes[:, -1] > 0))
    found = []
    kinds: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for i, row, rooms in zip(usable.tolist(), sizes[usable].tolist(), room[usable].tolist()):
        kinds.setdefault((tuple(row), tuple(rooms)), []).append(i)
    for (blocks, rooms), members in kinds.items():
        _, between = planner.cut(circuit, blocks)
        qpus = sets[members]
        cost = np.full(len(members), np.inf)
        chosen = np.zeros(len(members), np.int64)
        orders = _orders(blocks, rooms)
        for k, order in enumerate(orders):
            now = np.zeros(len(members))
            for x in range(len(blocks)):
                for y in range(x + 1, len(blocks)):
                    if between[x, y]:
                        now += between[x, y] * planner.pair_s[qpus[:, order[x]], qpus[:, order[y]]]
            better = now < cost
            cost[better], chosen[better] = now[better], k
        for i in np.argsort(cost, kind="stable")[:many].tolist():
            placed = tuple(int(qpus[i, q]) for q in orders[chosen[i]])
            found.append((float(cost[i]), members[i], placed, blocks))
    return found


@functools.lru_cache(maxsize=4096)
def _orders(sizes: tuple[int, ...], rooms: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The ways to put each block on a QPU with room for it: all of them if they are few, else as they are."""
    own = tuple(range(len(sizes)))
    if math.factorial(len(sizes)) > MOST_ORDERS:
        return (own,)
    return tuple(order for order in itertools.permutations(own) if all(rooms[q] >= size for q, size in zip(order, sizes)))
