"""The reservation of EASY backfilling: when the blocked job could start, and how many nodes it would leave free then."""

from __future__ import annotations

from armillary.kernels import loop

from .state import FREE, RUNNING


@loop
def reserve(s, head, now):  # type: ignore[no-untyped-def]
    """(shadow time, extra nodes): the earliest time at which expected ends free enough nodes for `head`, and what is free beyond it.

    An overdue job is expected to end now. All ends at the shadow time itself count.
    """
    free, shadow, enough = s.counts[FREE], now, s.counts[FREE] >= s.nodes[head]
    for i in range(s.counts[RUNNING]):
        end = max(s.expected[s.running[i]], now)
        if enough and end > shadow:
            break
        free += s.nodes[s.running[i]]
        shadow = end
        enough = free >= s.nodes[head]
    return shadow, free - s.nodes[head]
