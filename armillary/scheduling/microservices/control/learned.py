"""The controller of DDRM and of its two halves: the decider's action, or a greedy one, with or without the shield."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from armillary.scheduling.microservices.application.application import Application
from armillary.scheduling.microservices.learning.features import STAY, Observed
from armillary.scheduling.microservices.learning.observation import observation
from armillary.scheduling.microservices.learning.predictor import Predictor
from armillary.scheduling.microservices.simulation.window import Decision, Ints, Window

from .shield import Judge, lowered, quotas_at, risk, shielded

#: Below this risk a window is calm, and after so many calm windows the least sensitive service gives one more level.
CALM, CALM_WINDOWS = 0.02, 10


def greedy(judge: Judge, seen: Observed, p_max: float, remembered: Any = None) -> Ints:
    """Stage 1 alone: if staying is safe, as many services as stay safe give 10 %; otherwise services are raised until it is safe."""
    if remembered is None:
        remembered = judge.remembered(seen.history())[None]
    stay = np.full(len(seen.app.services), STAY)
    if risk(judge, seen, remembered, stay[None])[0] <= p_max:
        return lowered(judge, seen, remembered, stay, p_max)
    return shielded(judge, seen, remembered, stay, p_max)[0]


@dataclass
class LearnedController:
    """One run of an application. `decider` is a frozen policy, or None for the greedy rule."""

    app: Application
    predictor: Predictor
    decider: Any = None
    shield: bool = True
    by_slope: bool = True
    calm: bool = True
    foresight: bool = True
    p_max: float = 0.1
    #: Draws actions instead of taking the likeliest, if given.
    rng: np.random.Generator | None = None
    _calm_for: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._seen = Observed(self.app)

    def decide(self, window: Window) -> Decision:
        """The quotas of the next second, with the probability that it violates the objective."""
        seen = self._seen
        seen.add(window)
        remembered = self.predictor.remembered(seen.history())[None]
        levels = self._action(remembered)
        if self.shield:
            levels, now = shielded(self.predictor, seen, remembered, levels, self.p_max, by_slope=self.by_slope)
            self._calm_for = self._calm_for + 1 if now <= CALM else 0
            if self.calm and self._calm_for >= CALM_WINDOWS:
                levels = self._one_less(remembered, levels)
        quotas = quotas_at(seen, levels)
        both = self.predictor.probabilities(remembered, seen.proposed(quotas)[None])[0]
        return Decision(quotas, promise=float(both[0]))

    def _action(self, remembered: Any) -> Ints:
        seen = self._seen
        if self.decider is None:
            return greedy(self.predictor, seen, self.p_max, remembered)
        logits = self.decider.logits(observation(self.predictor, seen, remembered, self.foresight))[0]
        if self.rng is not None:
            logits = logits + self.rng.gumbel(size=logits.shape)
        found: Ints = logits.argmax(-1)
        return found

    def _one_less(self, remembered: Any, levels: Ints) -> Ints:
        seen = self._seen
        slopes = self.predictor.slopes(seen, remembered, quotas_at(seen, levels))
        least = int(np.argmax(np.where(levels > 0, slopes, -np.inf)))
        tried = levels.copy()
        tried[least] = max(tried[least] - 1, 0)
        return tried if risk(self.predictor, seen, remembered, tried[None])[0] <= self.p_max else levels
