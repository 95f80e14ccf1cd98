"""A sender without a plan looks whether the network is idle before every chunk, and sends one if it is.

It needs no profile and cannot be wrong about a span; a chunk that is under way when a collective begins holds it up. Small chunks keep that
short, and cost more launches. This is our rival to the planners, 2026: it shows what a plan is worth where training has priority at the
boundaries of chunks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.arena import Technique
from armillary.parameters import parameter

from .planning.policy import Plan, Policy, Seen, Setting
from .simulation.training import Trained, in_memory

if TYPE_CHECKING:
    from .workload import CheckpointWork


class Unplanned:
    """Sends whatever goes out; where the interval is open, as many iterations per checkpoint as the spans of the warm-up ask for."""

    def __init__(self, setting: Setting, chunk: float) -> None:
        self.setting, self.chunk = setting, chunk
        self._interval = setting.every
        self._idle_s, self._count = 0.0, 0

    def plan(self) -> Plan:
        """As much as there is, in any span."""
        spans, learning = len(self.setting.expert), not self.setting.every and self._count < self.setting.warm_up
        if learning:
            return Plan(0.0, np.zeros(spans), self.chunk, profile=True)
        if not self._interval:
            rate = self.chunk / (self.setting.alpha + self.chunk / self.setting.beta)
            self._interval = max(1, math.ceil(self.setting.state / (rate * self._idle_s / self._count)))
        every = self._interval
        return Plan(self.setting.state / every, np.full(spans, math.inf), self.chunk, interval=every, latency=every)

    def observe(self, seen: Seen) -> None:
        """Adds up idle seconds while the interval is still open."""
        if seen.spans is not None:
            self._idle_s += float(seen.spans.sum())
            self._count += 1


@dataclass(frozen=True)
class Opportunistic(Technique):
    """Checkpoints in memory, sent chunk by chunk whenever the network is idle (ours, 2026)."""

    chunk_mib: float = parameter(8.0, "MiB of a chunk; the best on the two networks of the built-in cases", range=(0.0625, 4096.0))
    replicas: int = parameter(2, "nodes that keep a copy, the own one included", range=(2, 64))

    def policy(self, setting: Setting) -> Policy:
        """The policy for simulations and for real training."""
        return Unplanned(setting, self.chunk_mib * 2**20)

    def train(self, work: CheckpointWork) -> Trained:
        """Simulates the run."""
        return in_memory(work, self.policy, replicas=self.replicas)
