"""Gemini sends checkpoints to the memory of other nodes, in the spans in which the network is idle anyway.

The first iterations are profiled, and the mean of each span becomes the plan for the rest of the run: chunks fill γ = 0.9 of every span,
through a buffer of 128 MiB on the GPU in four parts, so that copies and sends overlap. What does not fit goes after the backward pass.
Each node keeps its own state and that of m − 1 neighbours on a ring. Where the case leaves the interval open, it is the shortest for which
the spans have room.

Our reading gives it one freedom beyond the plan: a chunk that found no room in its span takes the room that later spans have left.

GEMINI: Fast Failure Recovery in Distributed Training with In-Memory Checkpoints, SOSP 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.arena import Technique
from armillary.parameters import parameter

from .planning.chunks import FloatArray
from .planning.policy import Plan, Policy, Seen, Setting, least_interval, planned
from .simulation.training import Trained, in_memory

if TYPE_CHECKING:
    from .workload import CheckpointWork


class FixedPlan:
    """Profiles the warm-up without checkpoints, and keeps the plan of its mean spans."""

    def __init__(self, setting: Setting, gamma: float, chunk: float) -> None:
        self.setting, self.gamma, self.chunk = setting, gamma, chunk
        self._sum: FloatArray = np.zeros(len(setting.expert))
        self._count = 0
        self._plan: Plan | None = None

    def plan(self) -> Plan:
        """The fixed plan; before it, an iteration that is profiled and sends nothing."""
        if self._count < self.setting.warm_up:
            return Plan(0.0, np.zeros(len(self._sum)), self.chunk, profile=True)
        if self._plan is None:
            mean = self._sum / self._count
            whole = planned(self.setting, mean, self.setting.state, self.gamma, self.chunk)
            every = least_interval(self.setting, float(whole.room.sum()))
            self._plan = whole if every == 1 else planned(
                self.setting, mean, self.setting.state / every, self.gamma, self.chunk, interval=every
            )  # fmt: skip
        return self._plan

    def observe(self, seen: Seen) -> None:
        """Adds a profile to the mean."""
        if seen.spans is not None:
            self._sum = self._sum + seen.spans
            self._count += 1


@dataclass(frozen=True)
class Gemini(Technique):
    """Checkpoints in memory, by the mean spans of the first iterations. GEMINI, SOSP 2023."""

    gamma: float = parameter(0.9, "the share of a span that is used", range=(0.05, 1.0))
    chunk_mib: float = parameter(32.0, "MiB of a chunk, a quarter of the buffer on the GPU", range=(0.0625, 4096.0))
    replicas: int = parameter(2, "nodes that keep a copy, the own one included", range=(2, 64))
    committed: bool = parameter(False, "whether the chunks of a span are queued before its collective and cannot be held back")

    def policy(self, setting: Setting) -> Policy:
        """The policy for simulations and for real training."""
        return FixedPlan(setting, self.gamma, self.chunk_mib * 2**20)

    def train(self, work: CheckpointWork) -> Trained:
        """Simulates the run. The profile is free, because it belongs to the warm-up."""
        return in_memory(work, self.policy, replicas=self.replicas, committed=self.committed)
