"""DeepSpeed's parameter coordinator, as ZeRO-Infinity uses it: fetch, prefetch a bucket ahead, release unless soon used again.

Before an operation its missing tensors are fetched; then the tensors of the following accesses are prefetched until a bucket is full, while
the live elements stay below a limit. After an operation its tensors are released, except small ones, which stay for good, and those that
are used again before `reuse` elements were touched in between. The recorded order ends with the iteration. Without a recorded order there
is no prefetch, and everything is released at once.
"""

# Kernels carry their types in the arrays that they are given.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from armillary.kernels import loop
from armillary.training.offload.simulation.schedule import DROP, IN, Moves

from .emitting import put

if TYPE_CHECKING:
    from armillary.training.offload.workload import OffloadWork


def bucketed(work: OffloadWork, *, bucket: float, live: float, reuse: float, persistent: float, malloc_s: float) -> Moves:
    """The moves of all iterations. `bucket`, `live`, `reuse` and `persistent` are numbers of elements."""
    parts, ops = [], work.order.shape[1]
    here = np.array(work.elements < persistent)
    before = None
    for it in range(work.iterations):
        tensor, op = work.rows(it)
        known = before is not None and np.array_equal(tensor, before)
        before = tensor
        out, count = np.empty((4, 4 * len(tensor) + 64), np.int64), np.zeros(1, np.int64)
        _bucketed(tensor, op + it * ops, np.array(work.elements), bucket, live, reuse, persistent, known, here, out, count)
        n = int(count[0])
        parts.append(Moves(out[0, :n], out[1, :n], out[2, :n], out[3, :n], np.where(out[1, :n] == IN, malloc_s, 0.0)))
    return Moves.joined(parts)


@loop
def _bucketed(tensor, op, elements, bucket, live, reuse, persistent, known, here, out, count):
    rows = len(tensor)
    touched = np.zeros(rows + 1)  # Elements that were touched before each access.
    following = np.full(rows, rows)
    seen = np.full(len(elements), rows)
    for r in range(rows):
        touched[r + 1] = touched[r] + elements[tensor[r]]
    for r in range(rows - 1, -1, -1):
        following[r] = seen[tensor[r]]
        seen[tensor[r]] = r
    # For each access, the first access of its operation.
    head = np.zeros(rows, np.int64)
    for r in range(1, rows):
        head[r] = head[r - 1] if op[r] == op[r - 1] else r
    available, queue, begin = 0.0, 0, 0
    while begin < rows:
        end = begin
        while end < rows and op[end] == op[begin]:
            t = tensor[end]
            if not here[t]:
                here[t] = True
                available += elements[t]
                put(out, count, 2 * op[begin], IN, t)
            end += 1
        if known:
            queue = max(queue, end)
            most, fetched = min(live - available, bucket), 0.0
            while queue < rows and fetched < most:
                t = tensor[queue]
                if not here[t]:
                    here[t] = True
                    available += elements[t]
                    fetched += elements[t]
                    put(out, count, 2 * op[begin], IN, t)
                queue += 1
        for r in range(begin, end):
            t = tensor[r]
            again = following[r]
            if elements[t] < persistent or not here[t]:
                continue
            if known and again < rows and touched[head[again]] - touched[end] < reuse:
                continue
            here[t] = False
            available -= elements[t]
            put(out, count, 2 * op[begin] + 1, DROP, t)
        begin = end
