"""Plain caches of the GPU's whole memory: what is needed comes in, and something leaves when there is no room.

The host keeps a copy of every parameter, so leaving costs nothing. `lru` fetches what the operation needs and what the next one needs, and
the least recently used tensor leaves. `belady` knows the whole future: after every operation it fetches what is missing next, as long as
something that is needed later can leave for it.
"""

# Kernels carry their types in the arrays that they are given.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from armillary.kernels import loop
from armillary.training.offload.simulation.schedule import DROP, IN, Moves

from .emitting import put

if TYPE_CHECKING:
    from armillary.training.offload.workload import OffloadWork

BoolArray = npt.NDArray[np.bool_]
_FAR = np.iinfo(np.int64).max


def cached(work: OffloadWork, capacity: float, *, belady: bool, ahead: int = 1) -> tuple[Moves, BoolArray, BoolArray]:
    """(moves, tensors on the GPU at the start, tensors on the GPU at the end of each iteration) of a cache of `capacity` bytes."""
    tensors, ops = [], []
    for it in range(work.iterations):
        tensor, op = work.rows(it)
        tensors.append(tensor)
        ops.append(op + it * work.order.shape[1])
    tensor, op = np.concatenate(tensors), np.concatenate(ops)
    following = _following(tensor, len(work.size))
    out, count = np.empty((4, 4 * len(tensor) + 64), np.int64), np.zeros(1, np.int64)
    resident = _first_resident(work, capacity)
    homes = np.zeros((work.iterations, len(work.size)), bool)
    _cached(tensor, op, following, np.array(work.size), capacity, belady, ahead, resident.copy(), work.order.shape[1], homes, out, count)
    n = int(count[0])
    return Moves(out[0, :n], out[1, :n], out[2, :n], out[3, :n], np.zeros(n)), resident, homes


def _first_resident(work: OffloadWork, capacity: float) -> BoolArray:
    """The first tensors in forward order, as many as fit."""
    tensor, _ = work.rows(0)
    resident, held = np.zeros(len(work.size), bool), 0.0
    for t in dict.fromkeys(tensor.tolist()):
        held += work.size[t]
        if held > capacity:
            break
        resident[t] = True
    return resident


def _following(tensor: npt.NDArray[np.int64], tensors: int) -> npt.NDArray[np.int64]:
    """For each access, the next one of the same tensor, or a very large number."""
    following, seen = np.empty(len(tensor), np.int64), np.full(tensors, _FAR)
    for row in range(len(tensor) - 1, -1, -1):
        following[row] = seen[tensor[row]]
        seen[tensor[row]] = row
    return following


@loop
def _worst(here, busy, key, belady, bound):
    """The tensor on the GPU that is needed last (later than `bound`) or was used first; −1 if all are busy."""
    worst = -1
    for t in range(len(here)):
        if here[t] and not busy[t]:
            if belady:
                if key[t] > bound and (worst < 0 or key[t] > key[worst]):
                    worst = t
            elif worst < 0 or key[t] < key[worst]:
                worst = t
    return worst


@loop
def _cached(tensor, op, following, size, capacity, belady, ahead, here, ops, homes, out, count):
    rows, tensors = len(tensor), len(size)
    busy = np.zeros(tensors, np.bool_)
    key = np.full(tensors, -1)  # LRU: the last access; Belady: the next.
    held = 0.0
    for t in range(tensors):
        if here[t]:
            held += size[t]
    if belady:
        key[:] = _FAR
        for r in range(rows - 1, -1, -1):
            key[tensor[r]] = r
    begin, cursor = 0, 0
    while begin < rows:
        end = begin
        while end < rows and op[end] == op[begin]:
            busy[tensor[end]] = True
            end += 1
        last = end
        if not belady:
            steps = 0
            while steps < ahead and last < rows and op[last] // ops == op[begin] // ops:
                steps += 1
                this = op[last]
                while last < rows and op[last] == this:
                    last += 1
        for r in range(begin, last):
            t = tensor[r]
            if here[t]:
                busy[t] = True
                continue
            possible = True
            while held + size[t] > capacity:
                worst = _worst(here, busy, key, belady, -1)
                if worst < 0:
                    possible = False
                    break
                put(out, count, 2 * op[begin], DROP, worst)
                here[worst] = False
                held -= size[worst]
            if not possible and r >= end:
                break
            busy[t] = True
            here[t] = True
            held += size[t]
            put(out, count, 2 * op[begin], IN, t)
        for r in range(begin, last):
            busy[tensor[r]] = False
        for r in range(begin, end):
            key[tensor[r]] = following[r] if belady else r
        if belady:
            cursor = max(cursor, end)
            while cursor < rows:
                t = tensor[cursor]
                if here[t]:
                    cursor += 1
                    continue
                possible = True
                while held + size[t] > capacity:
                    worst = _worst(here, busy, key, True, cursor)
                    if worst < 0:
                        possible = False
                        break
                    put(out, count, 2 * op[begin] + 1, DROP, worst)
                    here[worst] = False
                    held -= size[worst]
                if not possible:
                    break
                here[t] = True
                held += size[t]
                put(out, count, 2 * op[begin] + 1, IN, t)
                cursor += 1
        if end == rows or op[end] // ops != op[begin] // ops:
            for t in range(tensors):
                homes[op[begin] // ops, t] = here[t]
        begin = end
