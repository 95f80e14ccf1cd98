"""Free cores and GPUs of many nodes, as compiled loops: the first node with room is found in O(log nodes).

A tournament over the nodes keeps the most free cores and the most free GPUs below each of its points. A node that is reserved, or that has
left, shows nothing free to anybody else. The simulation and the real pilot place tasks with the same functions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from armillary.kernels import loop

OPEN, RESERVED, GONE = 0, 1, 2


class Nodes(NamedTuple):
    """`cores` and `gpus` are free on each node; `most_cores` and `most_gpus` are the tournament, whose leaves begin at `places`."""

    cores: np.ndarray
    gpus: np.ndarray
    state: np.ndarray
    most_cores: np.ndarray
    most_gpus: np.ndarray
    #: How many open nodes have so many free cores, as a histogram over the numbers of cores.
    held: np.ndarray


def nodes_of(count: int, cores: int, gpus: int) -> Nodes:
    """`count` free nodes."""
    places = 1 << max(1, (count - 1).bit_length())
    most_cores, most_gpus = np.full(2 * places, -1, np.int64), np.full(2 * places, -1, np.int64)
    most_cores[places : places + count], most_gpus[places : places + count] = cores, gpus
    for point in range(places - 1, 0, -1):
        most_cores[point] = max(most_cores[2 * point], most_cores[2 * point + 1])
        most_gpus[point] = max(most_gpus[2 * point], most_gpus[2 * point + 1])
    held = np.zeros(cores + 1, np.int64)
    held[cores] = count
    return Nodes(np.full(count, cores, np.int64), np.full(count, gpus, np.int64), np.zeros(count, np.int64), most_cores, most_gpus, held)


@loop
def show(n: Any, node: int) -> None:
    """Replays the matches of one node after a change."""
    places = len(n.most_cores) >> 1
    point = places + node
    is_open = n.state[node] == OPEN
    n.most_cores[point] = n.cores[node] if is_open else -1
    n.most_gpus[point] = n.gpus[node] if is_open else -1
    point >>= 1
    while point >= 1:
        cores = max(n.most_cores[2 * point], n.most_cores[2 * point + 1])
        gpus = max(n.most_gpus[2 * point], n.most_gpus[2 * point + 1])
        if n.most_cores[point] == cores and n.most_gpus[point] == gpus:
            break
        n.most_cores[point], n.most_gpus[point] = cores, gpus
        point >>= 1


@loop
def turn(n: Any, node: int, state: int) -> None:
    """Opens, reserves or removes a node."""
    if n.state[node] == OPEN:
        n.held[n.cores[node]] -= 1
    n.state[node] = state
    if state == OPEN:
        n.held[n.cores[node]] += 1
    show(n, node)


@loop
def take(n: Any, node: int, cores: int, gpus: int) -> None:
    """Takes from a node, or gives back where the numbers are negative."""
    is_open = n.state[node] == OPEN
    if is_open:
        n.held[n.cores[node]] -= 1
    n.cores[node] -= cores
    n.gpus[node] -= gpus
    if is_open:
        n.held[n.cores[node]] += 1
    show(n, node)


@loop
def find(n: Any, start: int, end: int, cores: int, gpus: int) -> int:
    """The first open node from `start` on and before `end` with so many free, or -1."""
    places = len(n.most_cores) >> 1
    if start >= end:
        return -1
    point = places + start
    while True:
        if n.most_cores[point] >= cores and n.most_gpus[point] >= gpus:
            if point >= places:
                node = point - places
                return node if node < end else -1
            point *= 2
        else:
            while point & 1:
                point >>= 1
            if point == 0:
                return -1
            point += 1
            leftmost = point
            while leftmost < places:
                leftmost *= 2
            if leftmost - places >= end:
                return -1


@loop
def find_several(n: Any, start: int, end: int, width: int, cores: int, gpus: int, found: np.ndarray) -> bool:
    """Writes the first `width` open nodes with so many free on each into `found`; false if there are fewer."""
    enough = 0
    for free in range(cores, len(n.held)):
        enough += n.held[free]
    if enough < width:
        return False
    node = start - 1
    for i in range(width):
        node = find(n, node + 1, end, cores, gpus)
        if node < 0:
            return False
        found[i] = node
    return True


@loop
def nearest(n: Any, start: int, end: int, width: int, cores: int, gpus: int, found: np.ndarray) -> bool:
    """Writes the `width` open nodes that lack least for such a task into `found`: those are to be reserved."""
    lack = np.empty(end - start)
    for node in range(start, end):
        short = max(0, cores - n.cores[node]) + 8 * max(0, gpus - n.gpus[node])
        lack[node - start] = short if n.state[node] == OPEN else 1e18
    order = np.argsort(lack, kind="mergesort")
    if width > len(order) or lack[order[width - 1]] >= 1e18:
        return False
    for i in range(width):
        found[i] = start + order[i]
    return True
