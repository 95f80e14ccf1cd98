"""The most bytes that communication buffers, gathered weights and gradients take at once, by following a step event by event.

The events are those of the runtime (`runtime.sharded`), and a test holds this model against what the runtime measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..layouts.sharding import Group, Sharding


@dataclass
class _Live:
    """Bytes by owner, and the most of their sum."""

    now: dict[tuple[str, int], int] = field(default_factory=dict)
    peak: int = 0

    def add(self, what: str, group: int, count: int) -> None:
        self.now[what, group] = count

    def drop(self, what: str, group: int) -> None:
        self.now.pop((what, group), None)

    def look(self) -> None:
        self.peak = max(self.peak, sum(self.now.values()))


def peak_buffers(sharding: Sharding, groups: Sequence[Group], width: int, *, resident: Group | None = None) -> int:
    """The most bytes of buffers, gathered weights and gradients of whole groups during a step, besides shards and their gradients.

    `width` is the bytes of a weight and of a gradient in the buffers. `resident` is a group that stays gathered through the step.
    """
    if sharding.replicated:
        return 0
    padded = [width * sum(b.padded for b in g.buckets) for g in groups]
    real = [width * sum(b.elements for b in g.buckets) for g in groups]
    sent = [width * sum(b.shard for b in g.buckets) for g in groups]
    live = _Live()
    if sharding.pooled:
        for place in (0, 1):
            live.add("pool", place, 2 * max(padded[place::2], default=0))
        padded_now, gradient_now = [0] * len(groups), [0] * len(groups)
    else:
        padded_now = gradient_now = padded
    if resident is not None:
        # Its buffer is freed after the copy, but its gradients stay to the end.
        whole, inside = (width * sum(x) for x in ([b.padded for b in resident.buckets], [b.elements for b in resident.buckets]))
        live.add("resident", 0, whole if sharding.has_views else inside)
        if sharding.has_gradient_views:
            live.add("resident gradients", 0, whole)
    walk = _Walk(sharding, live, padded_now, gradient_now, real, sent)
    for i in range(len(groups)):
        walk.need(i, 1)
        if i + 1 < len(groups):
            walk.release(i)
    if resident is not None and not sharding.has_gradient_views:
        live.add("resident gradients", 0, width * sum(b.elements for b in resident.buckets))
    for i in reversed(range(len(groups))):
        walk.need(i, -1)
        walk.backward(i)
    if resident is not None:
        if not sharding.has_gradient_views:
            live.look()
            walk.finish_all_but(0)
            live.add("resident reduced", 0, width * sum(b.padded for b in resident.buckets))
        live.look()
    return live.peak


@dataclass
class _Walk:
    sharding: Sharding
    live: _Live
    padded: list[int]
    gradients: list[int]
    real: list[int]
    sent: list[int]
    gathered: set[int] = field(default_factory=set)
    reducing: list[int] = field(default_factory=list)

    def begin(self, i: int) -> None:
        if i in self.gathered or ("gather", i) in self.live.now:
            return
        self.live.add("gather", i, self.padded[i])
        if not self.sharding.has_views:
            self.live.add("sent", i, self.sent[i])

    def need(self, i: int, direction: int) -> None:
        self.begin(i)
        if i not in self.gathered:
            self.live.drop("sent", i)
            self.gathered.add(i)
            if not self.sharding.has_views:
                self.live.add("weights", i, self.real[i])
                self.live.look()
                self.live.drop("gather", i)
            self.live.look()
        ahead = i + direction
        if self.sharding.prefetches and 0 <= ahead < len(self.real):
            self.begin(ahead)
        self.live.look()

    def release(self, i: int) -> None:
        self.live.drop("gather", i)
        self.live.drop("weights", i)
        self.gathered.discard(i)

    def backward(self, i: int) -> None:
        self.finish_all_but(1)
        if self.sharding.has_gradient_views:
            self.live.add("gradients", i, self.gradients[i])
            self.live.look()
        else:
            self.live.look()
            self.live.add("made", i, self.real[i])
            self.live.look()
            self.finish_all_but(1)
            self.live.add("gradients", i, self.gradients[i])
            self.live.look()
            self.live.drop("made", i)
        self.live.look()
        self.reducing.append(i)
        self.release(i)

    def finish_all_but(self, left: int) -> None:
        while len(self.reducing) > left:
            self.live.drop("gradients", self.reducing.pop(0))
