"""MoEvement spreads a checkpoint over a window of iterations: each saves some operators whole, and of the others the weights only.

In iteration i of a window of W, a W-th of the operators is saved with its optimizer state, and of those whose turn is still to come the
16-bit weights, which replay needs: C·(1/W + (W − 1 − i)/W · 2/14) bytes. The window is the smallest whose largest part has room in the
spans of the first iterations. After a failure, the W iterations of the window are replayed; an operator is frozen until its saved state is
reached, which spares its weight gradients, and at the end the state is dense. Parts travel as Gemini's, to the memory of neighbours.

Our design where it was open: operators are divided evenly by bytes, popular ones not last; upstream logging, which confines a replay to
one data-parallel group, is left out, because every group takes part in all-to-alls here.

MoEvement: Sparse checkpointing for fast and reliable MoE training, arXiv 2412.15411, 2024.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from armillary.arena import Technique
from armillary.parameters import parameter

from .planning.chunks import FloatArray, room_of
from .planning.policy import Plan, Policy, Seen, Setting, planned
from .simulation.training import Trained, in_memory
from .workload import STATE_BYTES, WEIGHT_BYTES

if TYPE_CHECKING:
    from .workload import CheckpointWork


def parts(state: float, window: int) -> FloatArray:
    """[W]: bytes of each iteration of a window, for a whole state of `state` bytes; they shrink by the weights of those saved before."""
    later = np.arange(window - 1, -1, -1) / window
    return state * (1 / window + later * WEIGHT_BYTES / STATE_BYTES)


def window_for(state: float, room: float, most: int) -> int:
    """The smallest window whose first, largest part fits `room` bytes; `most` if none does."""
    fitting = (w for w in range(1, most) if parts(state, w)[0] <= room)
    return next(fitting, most)


class SparseWindow:
    """Profiles the warm-up, then repeats a window of plans."""

    def __init__(self, setting: Setting, gamma: float, chunk: float, most: int) -> None:
        self.setting, self.gamma, self.chunk, self.most = setting, gamma, chunk, most
        self._sum: FloatArray = np.zeros(len(setting.expert))
        self._count = 0
        self.window = 0
        self._plans: list[Plan] = []

    def plan(self) -> Plan:
        """The plan of the next iteration of the window."""
        if self._count < self.setting.warm_up:
            return Plan(0.0, np.zeros(len(self._sum)), self.chunk, profile=True)
        if not self._plans:
            mean, s = self._sum / self._count, self.setting
            room = float(room_of(mean, s.alpha, s.beta, gamma=self.gamma, chunk=self.chunk).sum())
            self.window = window_for(s.state, room, self.most)
            sizes = parts(s.state, self.window).tolist()
            self._plans = [planned(s, mean, size, self.gamma, self.chunk, interval=self.window) for size in sizes]
        self._plans.append(self._plans.pop(0))
        return self._plans[-1]

    def observe(self, seen: Seen) -> None:
        """Adds a profile to the mean."""
        if seen.spans is not None:
            self._sum = self._sum + seen.spans
            self._count += 1


@dataclass(frozen=True)
class Moevement(Technique):
    """Sparse checkpoints over a window. MoEvement, arXiv 2412.15411, 2024."""

    gamma: float = parameter(0.9, "the share of a span that is used", range=(0.05, 1.0))
    chunk_mib: float = parameter(32.0, "MiB of a chunk", range=(0.0625, 4096.0))
    window: int = parameter(64, "the most iterations of a window", range=(1, 1024))
    replicas: int = parameter(2, "nodes that keep a copy, the own one included", range=(2, 64))
    committed: bool = parameter(False, "whether the chunks of a span are queued before its collective and cannot be held back")

    def policy(self, setting: Setting) -> Policy:
        """The policy for simulations."""
        return SparseWindow(setting, self.gamma, self.chunk_mib * 2**20, self.window)

    def train(self, work: CheckpointWork) -> Trained:
        """Simulates the run."""
        run = in_memory(work, self.policy, replicas=self.replicas, committed=self.committed)
        window = round(run.interval)
        # Half of the operators are frozen on average, and weight gradients are a third of an iteration.
        share = 1 - (window - 1) / (6 * window)
        return replace(run, latency=1, replayed=window if window > 1 else 0, replay_share=share)
