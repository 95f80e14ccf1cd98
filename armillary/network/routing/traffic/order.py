"""Whether dependencies between messages have an order."""

from __future__ import annotations

import numpy as np

from armillary.kernels import loop


@loop
def reachable(waiting, starts, successors):  # type: ignore[no-untyped-def]
    """How many messages can be sent, one after another, if each waits for `waiting` others, which goes down to 0."""
    many = len(waiting)
    ready = np.empty(many, np.int64)
    head, tail = 0, 0
    for m in range(many):
        if waiting[m] == 0:
            ready[tail] = m
            tail += 1
    while head < tail:
        m = ready[head]
        head += 1
        for i in range(starts[m], starts[m + 1]):
            other = successors[i]
            waiting[other] -= 1
            if waiting[other] == 0:
                ready[tail] = other
                tail += 1
    return tail
