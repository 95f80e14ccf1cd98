"""Distance halving: hand what the other half of the machine needs to one rank there, and halve again.

The ranks, in the order of their nodes, are split into two halves. Each rank picks a *proxy* in the other half, the one with which it shares
most out-neighbours there (greedily, each proxy taken once), and hands it every block it is responsible for that some rank of the other half
needs. It becomes responsible for what its own *origin* handed to it. Both halves go on in the same way while they are larger than a
node. What is left then goes directly to the ranks of the node.

Sharifian, Sojoodi, Afsahi, A Topology- and Load-Aware Design for Neighborhood Allgather, IEEE CLUSTER 2024. Splitting at the boundary of
nodes nearest to the middle, and a second origin for a proxy where the halves differ in size, are our design.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.arena import Technique
from armillary.kernels import loop

from .execution.socket import Planned
from .planning.places import laid_out
from .planning.problem import Problem
from .planning.schedule import Schedule
from .planning.traffic import Traffic


@dataclass(frozen=True)
class DistanceHalving(Planned, Technique):
    """Proxies in the other half, halves of halves, and direct messages inside a node."""

    def schedule(self, problem: Problem, prices: Any = None) -> Schedule:
        """One step per halving, then one inside the nodes."""
        order = np.argsort(problem.node_of, kind="stable").astype(np.int64)
        bits = _out_bits(problem, order)
        held = [np.array([rank]) for rank in range(problem.ranks)]
        traffic, step = Traffic(), 0
        ranges = [(0, problem.ranks)]
        while any(_splits(problem, order, low, high) for low, high in ranges):
            halves, handed = [], []
            for low, high in ranges:
                middle = _splits(problem, order, low, high)
                if not middle:
                    halves.append((low, high))
                    continue
                halves += [(low, middle), (middle, high)]
                for mine, other in (((low, middle), (middle, high)), ((middle, high), (low, middle))):
                    handed += _hand(bits, order, held, mine, other, traffic, step)
            for proxy, blocks in handed:
                held[proxy] = np.concatenate((held[proxy], blocks))
            ranges, step = halves, step + 1
        for low, high in ranges:
            _inside(bits, order, held, low, high, traffic, step)
        return laid_out("distance-halving", problem, traffic.messages(), shared=False)


def _out_bits(problem: Problem, order: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Row s has bit i set if the i-th rank in the order of the nodes receives the block of rank s."""
    ranks = problem.ranks
    position = np.empty(ranks, np.int64)
    position[order] = np.arange(ranks)
    needs = np.zeros((ranks, -(-ranks // 64) * 64), bool)
    needs[problem.graph.sender, position[problem.graph.destinations]] = True
    return np.packbits(needs, axis=1, bitorder="little").view(np.uint64)


def _splits(problem: Problem, order: npt.NDArray[np.int64], low: int, high: int) -> int:
    """Where a range is split: at the boundary of nodes nearest to its middle, or 0 if it lies in one node."""
    node = problem.node_of[order[low:high]]
    bounds = np.flatnonzero(node[1:] != node[:-1]) + 1
    return 0 if not len(bounds) else low + int(bounds[np.argmin(np.abs(2 * bounds - (high - low)))])


def _mask(low: int, high: int) -> tuple[int, npt.NDArray[np.uint64]]:
    """The first word of the bits [low, high), and the words with these bits set."""
    first, last = low // 64, -(-high // 64)
    flags = np.zeros(64 * (last - first), bool)
    flags[low - 64 * first : high - 64 * first] = True
    return first, np.packbits(flags, bitorder="little").view(np.uint64)


def _hand(
    bits: Any, order: Any, held: list[Any], mine: tuple[int, int], other: tuple[int, int], traffic: Traffic, step: int
) -> list[tuple[int, Any]]:
    """Sends what the ranks of one half hold for the other, and returns (proxy, blocks)."""
    first, mask = _mask(*other)
    needed = np.any(bits[:, first : first + len(mask)] & mask, axis=1)
    blocks = [held[rank][needed[held[rank]]] for rank in order[mine[0] : mine[1]]]
    has = np.array([len(row) > 0 for row in blocks])
    proxies = _proxies(bits, order, mine[0], mine[1], other[0], other[1], first, mask, has)
    moved = [i for i in range(len(has)) if has[i]]
    if not moved:
        return []
    givers = order[mine[0] : mine[1]][moved]
    traffic.add(step, givers, proxies[moved], [len(blocks[i]) for i in moved], np.concatenate([blocks[i] for i in moved]))
    return [(int(proxies[i]), blocks[i]) for i in moved]


def _inside(bits: Any, order: Any, held: list[Any], low: int, high: int, traffic: Traffic, step: int) -> None:
    """Sends each rank of a node what it still needs from those that are responsible for it."""
    first = low // 64
    last = -(-high // 64)
    wants = np.unpackbits(np.ascontiguousarray(bits[:, first:last]).view(np.uint8), axis=1, bitorder="little")
    wants = wants[:, low - 64 * first : high - 64 * first].astype(bool)
    for at, rank in enumerate(order[low:high]):
        flags = wants[held[rank]].T.copy()
        flags[at] = False
        takers, which = np.nonzero(flags)
        counts = np.bincount(takers, minlength=high - low)
        # The next rank first, so that not all of a node's ranks begin with the same one.
        turned = np.roll(np.arange(high - low), -at)
        turned = turned[counts[turned] > 0]
        ends = np.concatenate(([0], np.cumsum(counts)))
        if len(turned):
            blocks = np.concatenate([held[rank][which[ends[i] : ends[i + 1]]] for i in turned])
            traffic.add(step, np.full(len(turned), rank), order[low + turned], counts[turned], blocks)


@loop
def _proxies(bits, order, low, middle, other, high, first, mask, has):  # type: ignore[no-untyped-def]
    """The proxy of each rank of [low, middle) in [other, high), by most shared bits; ties go to the rank at the same place in its half."""
    mine, theirs = middle - low, high - other
    most = -(-mine // theirs)
    taken = np.zeros(theirs, np.int64)
    found = np.full(mine, -1, np.int64)
    for i in range(mine):
        if not has[i]:
            continue
        row, best, shared = order[low + i], -1, -1
        for j in range(theirs):
            k = (i + j) % theirs
            if taken[k] >= most:
                continue
            column, both = order[other + k], 0
            for w in range(len(mask)):
                both += _ones(bits[row, first + w] & bits[column, first + w] & mask[w])
            if both > shared:
                best, shared = k, both
        taken[best] += 1
        found[i] = order[other + best]
    return found


@loop
def _ones(word):  # type: ignore[no-untyped-def]
    """The number of bits that are set."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))
