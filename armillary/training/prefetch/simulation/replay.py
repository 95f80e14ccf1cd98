"""Training with buffers, replayed minibatch by minibatch in simulated time.

While minibatch t trains, the features of minibatch t + 1 are fetched, and gradients are reduced over all trainers after each, so a step
takes as long as the longest computation or fetch of any trainer. Training starts when every buffer has its first content and every
trainer its first minibatch; a buffer's first content is fetched and counted like everything else.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from armillary.kernels import loop
from armillary.training.prefetch.workload import Positions, PrefetchWork, Trainer

Places = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Fetch:
    """What a minibatch led to: the halo positions that are fetched, hits among those asked for, and vertices exchanged."""

    fetched: Places
    hits: int
    replaced: int = 0


class Cache(Protocol):
    """A trainer's buffer under one technique."""

    @property
    def first(self) -> Places:
        """Halo positions that are fetched before training."""
        ...

    @property
    def latencies(self) -> Sequence[float]:
        """Seconds that each decision took."""
        ...

    @property
    def decisions(self) -> Sequence[Mapping[str, Any]]:
        """One row per decision, for the report."""
        ...

    def minibatch(self, number: int, asked: Positions, now: float) -> Fetch:
        """Looks up one minibatch; `now` are seconds of simulated time."""
        ...


@dataclass(frozen=True)
class Replayed:
    """Simulated seconds and counts over all minibatches; counts are those of the sampled graph, per trainer in arrays."""

    seconds: float
    compute_s: float
    #: (trainers, minibatches): remote vertices asked for, found in the buffer, and fetched.
    asked: npt.NDArray[np.int64]
    hits: npt.NDArray[np.int64]
    fetched: npt.NDArray[np.int64]
    #: Vertices fetched before training, and exchanged, per trainer.
    first: npt.NDArray[np.int64]
    replaced: npt.NDArray[np.int64]
    #: Seconds of each step, (minibatches,): the fetch of that minibatch beside the computation of the one before.
    step_s: npt.NDArray[np.float64]
    latencies: tuple[float, ...] = ()
    decisions: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    @property
    def comm(self) -> int:
        """All remote vertices that were fetched, those of replacements and of the first content included."""
        return int(self.fetched.sum() + self.first.sum())

    @property
    def hit_rate(self) -> float:
        """The share of the remote vertices asked for that was in a buffer."""
        asked = int(self.asked.sum())
        return int(self.hits.sum()) / asked if asked else 1.0

    @property
    def stall_s(self) -> float:
        """All seconds less the longest computation of each minibatch, which are the seconds that fetches hold training up."""
        return max(0.0, self.seconds - self.compute_s)


def replay(work: PrefetchWork, caches: Sequence[Cache]) -> Replayed:
    """Replays all minibatches of a case with one cache per trainer."""
    trainers, minibatches = work.trainers, work.minibatches
    size, parts = float(work.feature_bytes * work.stands_for), work.parts
    compute = np.max([trainer.compute_s for trainer in trainers], axis=0)
    asked = np.array([np.diff(trainer.start) for trainer in trainers], np.int64)
    hits, fetched = np.zeros_like(asked), np.zeros_like(asked)
    replaced = np.zeros(len(trainers), np.int64)
    first = np.array([len(cache.first) for cache in caches], np.int64)
    step_s = np.zeros(minibatches)
    now = max(_fetch_s(work, trainer, cache.first, size, parts) for trainer, cache in zip(trainers, caches, strict=True))
    for t in range(minibatches):
        step = float(compute[t - 1]) if t else 0.0
        for i, (trainer, cache) in enumerate(zip(trainers, caches, strict=True)):
            done = cache.minibatch(t, trainer.asks(t), now)
            hits[i, t], fetched[i, t] = done.hits, len(done.fetched)
            replaced[i] += done.replaced
            step = max(step, _fetch_s(work, trainer, done.fetched, size, parts))
        step_s[t] = step
        now += step
    latencies = tuple(s for cache in caches for s in cache.latencies)
    decisions = tuple({"trainer": trainer.part, **row} for trainer, cache in zip(trainers, caches, strict=True) for row in cache.decisions)
    return Replayed(now + float(compute[-1]), float(compute.sum()), asked, hits, fetched, first, replaced, step_s, latencies, decisions)


def metrics(work: PrefetchWork, done: Replayed) -> dict[str, float]:
    """The arena's metrics; vertices and bytes are those of the graph that the sampled one stands for."""
    return {
        "epoch_s": done.seconds * work.epoch / work.minibatches,
        "stall_s": done.stall_s * work.epoch / work.minibatches,
        "comm_nodes": float(done.comm * work.stands_for),
        "comm_bytes": float(done.comm * work.stands_for * work.feature_bytes),
        "hit_rate": done.hit_rate,
        "decision_latency_s": float(np.mean(done.latencies)) if done.latencies else 0.0,
        "replacements": float(done.replaced.sum() * work.stands_for),
    }


def _fetch_s(work: PrefetchWork, trainer: Trainer, fetched: Places, size: float, parts: int) -> float:
    if not len(fetched):
        return 0.0
    return work.machine.fetch_s(int(_contacted(trainer.owner, fetched, parts)), size * len(fetched))


@loop
def _contacted(owner, fetched, parts):
    """How many parts hold one of these vertices."""
    seen = np.zeros(parts, np.bool_)
    count = 0
    for position in fetched:
        there = owner[position]
        if not seen[there]:
            seen[there] = True
            count += 1
    return count
