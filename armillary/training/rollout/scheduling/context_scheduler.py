"""Chooses the next request: one of each group goes ahead to show how long the group is, and then the longest groups go first.

The first request of a group is its *probe*. Probes come before all others, and the probe with the fewest tokens so far comes first, so
that short groups are known soon and long ones show themselves. A group's length is estimated by the longest of its finished requests, and
by the maximum as long as none is finished. All other requests are ordered by the longest estimate first (Graham's LPT, on estimates), and
ties by the fewest tokens that remain. A request that has outlived its group's estimate is a surprise whose end nobody knows, so it counts
as long as the maximum (ours): left where the short groups wait, such requests were the tail.

Seer (arXiv 2511.14617, 2025), context-aware scheduling.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping
from typing import Literal

from armillary.errors import InputError, unknown

#: The number of requests that are examined when the first does not fit the free KV.
LOOK = 16
Key = tuple[float, float, int]


class ContextScheduler:
    """A buffer of requests of one rollout, over all instances.

    `order` is "context" (as above), "fifo" (as they come) or "known" (longest first by the `lengths` of the requests, an oracle).
    """

    def __init__(
        self, max_length: int, order: Literal["context", "fifo", "known"] = "context", lengths: Mapping[Hashable, int] | None = None
    ) -> None:
        if max_length < 1:
            raise InputError(f"max_length: found {max_length}; expected at least 1")
        if order not in ("context", "fifo", "known"):
            raise unknown("order", order, ("context", "fifo", "known"))
        if order == "known" and lengths is None:
            raise InputError('lengths: order "known" needs them')
        self.max_length, self.order, self.lengths = max_length, order, lengths or {}
        self._group: dict[Hashable, Hashable] = {}
        self._probe: dict[Hashable, Hashable] = {}
        self._longest: dict[Hashable, int] = {}
        #: The waiting requests with (tokens so far, KV that the next piece needs, order of arrival), and those of each group.
        self._waits: dict[Hashable, tuple[int, int, int]] = {}
        self._of_group: dict[Hashable, set[Hashable]] = {}
        self._heap: list[tuple[Key, int, Hashable]] = []
        self._key: dict[Hashable, Key] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._waits)

    def estimate(self, group: Hashable) -> int:
        """The tokens of the group's longest finished request, or the maximum before any is finished."""
        return self._longest.get(group, self.max_length)

    def is_probe(self, request: Hashable) -> bool:
        """Whether this is the request that goes ahead for its group, and none of the group is finished yet."""
        group = self._group[request]
        return self._probe.get(group) == request and group not in self._longest

    def submit(self, request: Hashable, group: Hashable, generated: int = 0, kv_tokens: int = 0) -> None:
        """Adds a request that is new, or that comes back with `generated` tokens; its next piece needs `kv_tokens` of KV."""
        if request in self._waits:
            raise InputError(f"request {request} waits already")
        self._group[request] = group
        self._probe.setdefault(group, request)
        self._of_group.setdefault(group, set()).add(request)
        self._count += 1
        self._waits[request] = (generated, kv_tokens, self._count)
        self._push(request)

    def finish(self, request: Hashable, length: int) -> None:
        """Records that a request ended after `length` tokens, so that its group's estimate is at least that."""
        group = self._group[request]
        before = self.estimate(group)
        self._longest[group] = max(length, self._longest.get(group, 0))
        if self.order == "context" and self.estimate(group) != before:
            for other in self._of_group[group]:
                self._push(other)

    def cancel(self, request: Hashable) -> None:
        """Takes a waiting request out."""
        if request in self._waits:
            self._remove(request)

    def next(self, free_kv: float) -> Hashable | None:
        """Takes out the first of the first few requests whose next piece fits `free_kv` tokens; returns None if none of them fits."""
        aside: list[tuple[Key, int, Hashable]] = []
        found = None
        while self._heap and len(aside) < LOOK:
            key, order, request = heapq.heappop(self._heap)
            if request not in self._waits or self._key.get(request) != key or self._waits[request][2] != order:
                continue
            if self._waits[request][1] <= free_kv:
                found = request
                break
            aside.append((key, order, request))
        for entry in aside:
            heapq.heappush(self._heap, entry)
        if found is not None:
            self._remove(found)
        return found

    def _remove(self, request: Hashable) -> None:
        del self._waits[request]
        del self._key[request]
        self._of_group[self._group[request]].discard(request)

    def _push(self, request: Hashable) -> None:
        generated, _, order = self._waits[request]
        key: Key
        if self.order == "fifo":
            key = (0.0, 0.0, order)
        elif self.order == "known":
            key = (-float(self.lengths[request]), 0.0, order)
        elif self.is_probe(request):
            key = (-float("inf"), float(generated), order)
        else:
            longest = self.estimate(self._group[request])
            longest = longest if generated < longest else self.max_length
            key = (-float(longest), float(max(0, longest - generated)), order)
        self._key[request] = key
        heapq.heappush(self._heap, (key, order, request))
