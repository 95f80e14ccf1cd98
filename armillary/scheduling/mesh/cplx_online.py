"""CPLX that walks along its dial while the code runs, because no model knows the machine's message costs.

X is tried for a few steps, then a neighbouring X. The score is the median step time divided by the mean load of the ranks, so that a mesh
that grows does not count against the X that meets it. If the neighbour was better, the walk goes on in its direction; if not, it goes back
and tries the other side next time. Every trial costs a migration, and between trials of both sides it rests.

Our design, beyond: Lessons from Profiling and Optimizing Placement in AMR Codes (CPLX), IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.arena import Claim
from armillary.parameters import parameter

from .cplx import Cplx
from .octree.mesh import Floats, Ints
from .placement.policy import Session, State


@dataclass(frozen=True)
class CplxOnline(Cplx):
    """CPLX that measures its steps at neighbouring X and walks."""

    stride: float = parameter(25.0, "distance between neighbouring X", range=(0.1, 100))
    span: int = parameter(5, "steps for which an X is tried", range=(1, 10_000))
    margin: float = parameter(0.01, "share by which a neighbour must be better", range=(0, 1))

    claims: ClassVar[tuple[Claim, ...]] = ()

    def session(self) -> Session:
        """A run with an X of its own."""
        return _Walk(self)


class _Walk(Session):
    policy: CplxOnline

    def __init__(self, policy: CplxOnline) -> None:
        super().__init__(policy)
        #: The X that is in use, and the best one so far with its score.
        self.x = policy.x
        self._best: tuple[float, float] | None = None
        self._direction = 1.0
        self._scores: list[float] = []
        #: Trials in a row that were no better; after both sides failed the walk rests.
        self._failed = 0

    def due(self, step: int, changed: bool) -> bool:
        return super().due(step, changed) or step % self.policy.span == 0

    def place(self, state: State) -> Ints:
        if len(self._scores) >= self.policy.span:
            self._judge(float(np.median(self._scores)))
            self._scores = []
        return self.policy.at(state, self.x)

    def observe(self, state: State, costs: Floats, step_us: float) -> None:
        mean = costs.sum() / state.ranks
        self._scores.append(step_us / mean if mean > 0 else 0.0)

    def _judge(self, score: float) -> None:
        if self._best is None or self.x == self._best[0]:
            self._best = (self.x, score)
        elif score < (1 - self.policy.margin) * self._best[1]:
            self._best, self._failed = (self.x, score), 0
        else:
            self._failed += 1
            self._direction = -self._direction
        at = self._best[0]
        if self._failed >= 2:  # Neither neighbour is better: measure the best X again before the next try.
            self.x, self._failed = at, 0
            return
        if not 0 <= at + self._direction * self.policy.stride <= 100:
            self._direction = -self._direction
        self.x = min(100.0, max(0.0, at + self._direction * self.policy.stride))
