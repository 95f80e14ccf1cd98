"""Which qubits go together: a cut of the interaction graph into blocks of given sizes that crosses as few gates as possible.

A contiguous start is improved by Kernighan-Lin passes: the best exchange of two unlocked qubits is made and both are locked, until all
are; the best prefix of the exchanges is kept; passes go on until one gains nothing. The same is done from a few starts in breadth-first
order (ours, because one start alone ends up to a quarter above METIS), and the smallest cut is kept.

An efficient heuristic procedure for partitioning graphs, Bell System Technical Journal 1970.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop

from .circuit import Circuit, Ints

#: Up to so many qubits every exchange is weighed; of larger circuits, those of the qubit that gains most from leaving its block.
THOROUGH = 96
#: The number of breadth-first starts beside the contiguous one.
STARTS = 8


def partition(circuit: Circuit, sizes: Sequence[int], *, improve: bool = True) -> tuple[Ints, int]:
    """The block of each qubit, [qubits], and the number of gates between blocks. Block i gets `sizes[i]` qubits.

    improve: whether the contiguous start is improved.
    """
    if sum(sizes) != circuit.qubits or min(sizes, default=0) < 1:
        raise InputError(f"found blocks of {list(sizes)}; expected positive sizes that sum to {circuit.qubits}", where=circuit.name)
    return cut_blocks(circuit.weights, np.array(sizes, np.int64), improve)


def cut_blocks(weights: Ints, sizes: Ints, improve: bool = True) -> tuple[Ints, int]:
    """The same for an interaction graph [n, n]."""
    own = np.repeat(np.arange(len(sizes)), sizes)
    if len(sizes) == 1:
        return own, 0
    if not improve:
        return own, cut(weights, own)
    best, least = own, -1
    n = len(weights)
    roots = sorted({i * n // STARTS for i in range(STARTS)}) if n <= THOROUGH else [0]
    for root in (-1, *roots):
        order = np.arange(n) if root < 0 else _breadth_first(weights, root)
        block = np.empty_like(own)
        block[order] = own
        _improve(weights, block, len(sizes), n <= THOROUGH)
        found = cut(weights, block)
        if least < 0 or found < least:
            best, least = block, found
    return best, least


def cut(weights: Ints, block: Ints) -> int:
    """The gates between blocks."""
    return int(weights[block[:, None] != block[None, :]].sum()) // 2


@loop
def _breadth_first(weights, root):  # type: ignore[no-untyped-def]
    """Qubits in breadth-first order from `root`, the strongest neighbours first; further components from their least joined qubit."""
    n = len(weights)
    degree = weights.sum(1)
    order, seen, done = np.empty(n, np.int64), np.zeros(n, np.bool_), 0
    while done < n:
        first = root if done == 0 else -1
        for q in range(n if first < 0 else 0):
            if not seen[q] and (first < 0 or degree[q] < degree[first]):
                first = q
        order[done] = first
        seen[first] = True
        at, done = done, done + 1
        while at < done:
            row = weights[order[at]]
            for q in np.argsort(-row, kind="mergesort"):
                if row[q] > 0 and not seen[q]:
                    seen[q] = True
                    order[done] = q
                    done += 1
            at += 1
    return order


@loop
def _improve(weights, block, blocks, thorough):  # type: ignore[no-untyped-def]
    n = len(weights)
    # joined[u, b]: the gates between qubit u and block b.
    joined = np.zeros((n, blocks), np.int64)
    for u in range(n):
        for v in range(n):
            joined[u, block[v]] += weights[u, v]
    locked = np.empty(n, np.bool_)
    first, second = np.empty(n // 2 + 1, np.int64), np.empty(n // 2 + 1, np.int64)
    while True:
        locked[:] = False
        total, most, kept, steps = 0, 0, 0, 0
        while 2 * steps + 2 <= n:
            u, v, gain = _exchange(weights, block, joined, locked, thorough)
            if u < 0:
                break
            _swap(weights, block, joined, u, v)
            locked[u] = locked[v] = True
            first[steps], second[steps] = u, v
            steps += 1
            total += gain
            if total > most:
                most, kept = total, steps
        for i in range(steps - 1, kept - 1, -1):
            _swap(weights, block, joined, first[i], second[i])
        if most <= 0:
            return


@loop
def _exchange(weights, block, joined, locked, thorough):  # type: ignore[no-untyped-def]
    n, best = len(weights), -(1 << 62)
    left, right = -1, -1
    start, stop = 0, n
    if not thorough:
        wish = -(1 << 62)
        for u in range(n):
            if not locked[u]:
                for b in range(joined.shape[1]):
                    if b != block[u] and joined[u, b] - joined[u, block[u]] > wish:
                        wish, start = joined[u, b] - joined[u, block[u]], u
        stop = start + 1
    for u in range(start, stop):
        if locked[u]:
            continue
        for v in range(u + 1 if thorough else 0, n):
            if locked[v] or block[u] == block[v]:
                continue
            a, b = block[u], block[v]
            gain = joined[u, b] - joined[u, a] + joined[v, a] - joined[v, b] - 2 * weights[u, v]
            if gain > best:
                best, left, right = gain, u, v
    return left, right, best


@loop
def _swap(weights, block, joined, u, v):  # type: ignore[no-untyped-def]
    a, b = block[u], block[v]
    for w in range(len(weights)):
        moved = weights[w, u] - weights[w, v]
        joined[w, a] -= moved
        joined[w, b] += moved
    block[u], block[v] = b, a
