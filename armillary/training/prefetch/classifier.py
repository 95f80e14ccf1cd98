"""A logistic regression decides when the buffer is renewed, trained on other graphs: the traditional classifier that Rudder contrasts with.

It reads the same window and history as Rudder's controller, answers within a millisecond, and was trained once, by `analysis.labels.train`,
on graphs that are no case of this arena. Training it is part of the tests. Logistic regression as in Cox, The regression analysis of
binary sequences, 1958; the features are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique
from armillary.parameters import parameter

from .control.logistic import ClassifierPolicy
from .control.loop import ControlLoop
from .simulation.caches import STARTS, SteeredCache, first_content, scored, static_facts
from .workload import PrefetchWork

#: What `analysis.labels.train()` gives, in the order of `control.logistic.FEATURES`.
WEIGHTS = (-2.4041, 0.845, 2.667, 2.4043, -0.4261, -1.3979, -0.9895, -0.4231, 0.5314)


@dataclass(frozen=True)
class Classifier(Technique):
    """Renews the buffer when a classifier expects that to pay (logistic regression, 1958)."""

    weights: tuple[float, ...] = parameter(WEIGHTS, "of the bias and the features, as `train` gives them")
    period: int = parameter(25, "minibatches that may not hit an entry before it is stale (Δ)", range=(1, 100_000))
    alpha: float = parameter(0.05, "share by which a score falls per minibatch", range=(1e-6, 0.999))
    window: int = parameter(25, "minibatches that are averaged before the classifier is asked", range=(1, 100_000))
    latency_s: float = parameter(0.001, "seconds until the classifier answers", range=(0, 1e6))
    start: str = parameter("degree", "what a buffer starts with", choices=STARTS)

    def validate(self) -> None:
        """One weight per feature."""
        ClassifierPolicy(tuple(self.weights))

    def caches(self, work: PrefetchWork) -> list[SteeredCache]:
        """One cache per trainer."""
        made = []
        for trainer in work.trainers:
            buffer = scored(work, trainer, first_content(work, trainer, self.start, self.rng), alpha=self.alpha, period=self.period)
            loop = ControlLoop(static_facts(work, trainer, period=self.period, window=self.window))
            made.append(SteeredCache(trainer, buffer, loop, ClassifierPolicy(tuple(self.weights)), lambda: self.latency_s))
        return made
