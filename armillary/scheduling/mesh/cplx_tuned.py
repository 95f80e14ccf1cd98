"""CPLX with the X that a model of the step picks after ten steps.

The first ten steps run with X = 50. Then every X on a grid is tried on what those steps cost, in a model of sums (computation, overheads,
bytes per NIC), and the best one is kept. The model is coarser than the simulator that judges it.

Our design, on: Lessons from Profiling and Optimizing Placement in AMR Codes (CPLX), IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim, Kind, Level
from armillary.parameters import parameter

from .cplx import Cplx
from .octree.mesh import Floats, Ints
from .placement.policy import Session, State
from .tuning.tune import Seen, tuned


@dataclass(frozen=True)
class CplxTuned(Cplx):
    """CPLX that sets X by a model of the step after its first steps."""

    after: int = parameter(10, "steps that are observed before X is set", range=(1, 10_000))

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "tune_regret", by=Level(at_most=0.05), on=Kind("dial"), source="ours",
            says="the X picked from steps 1 to 10 is within 5 % of the best X of the later steps",
        ),
    )  # fmt: skip

    def session(self) -> Session:
        """A run with an X of its own."""
        return _Tuning(self)


class _Tuning(Session):
    policy: CplxTuned

    def __init__(self, policy: CplxTuned) -> None:
        super().__init__(policy)
        self.x = policy.x
        self._history: list[Seen] = []

    def due(self, step: int, changed: bool) -> bool:
        return super().due(step, changed) or step == self.policy.after

    def answer(self, state: State) -> Ints:
        if state.step >= self.policy.after and self._history:
            self.x = tuned(self._history, self.policy)
            self._history = []
        return self.policy.at(state, self.x)

    def place(self, state: State) -> Ints:
        # A new X must not meet the answer that an old one left.
        return self.answer(state)

    def observe(self, state: State, costs: Floats, step_us: float) -> None:
        if state.step >= self.policy.after:
            return
        if self._history and self._history[-1].state.graph is state.graph:
            last = self._history[-1]
            self._history[-1] = Seen(last.state, (*last.costs, costs))
        else:
            self._history.append(Seen(state, (costs,)))
