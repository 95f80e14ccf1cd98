"""Queues: a binary heap per function, one more for calls that run last, all in two arrays."""

from __future__ import annotations

from typing import Any

from armillary.kernels import loop


@loop
def push(x: Any, first: int, heap: int, key: float, call: int) -> None:
    """Adds a call; equal keys keep the order of their calls."""
    i = x.queues.count[heap]
    x.queues.count[heap] = i + 1
    while i > 0:
        up = (i - 1) // 2
        if x.heap.key[first + up] < key or (x.heap.key[first + up] == key and x.heap.call[first + up] < call):
            break
        x.heap.key[first + i], x.heap.call[first + i] = x.heap.key[first + up], x.heap.call[first + up]
        i = up
    x.heap.key[first + i], x.heap.call[first + i] = key, call


@loop
def pop(x: Any, first: int, heap: int) -> int:
    """Takes the first call."""
    answer = x.heap.call[first]
    n = x.queues.count[heap] - 1
    x.queues.count[heap] = n
    key, call = x.heap.key[first + n], x.heap.call[first + n]
    i = 0
    while 2 * i + 1 < n:
        down = 2 * i + 1
        if down + 1 < n and (
            x.heap.key[first + down + 1] < x.heap.key[first + down]
            or (x.heap.key[first + down + 1] == x.heap.key[first + down] and x.heap.call[first + down + 1] < x.heap.call[first + down])
        ):
            down += 1
        if key < x.heap.key[first + down] or (key == x.heap.key[first + down] and call < x.heap.call[first + down]):
            break
        x.heap.key[first + i], x.heap.call[first + i] = x.heap.key[first + down], x.heap.call[first + down]
        i = down
    if n > 0:
        x.heap.key[first + i], x.heap.call[first + i] = key, call
    return int(answer)
