"""Examples for the classifier, from graphs that are no case of the arena: what a policy saw, and whether replacing paid then.

The policy of these runs replaces at random, so that the examples cover buffers in many states. A replacement pays if the next window asks
for more of the newcomers than it fetches and than it asks for those that leave.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from armillary.streams import stream
from armillary.training.prefetch.control.logistic import Floats, features, fit
from armillary.training.prefetch.control.loop import ControlLoop, Decision, History, Static, Window
from armillary.training.prefetch.graphs.generation import communities, rmat
from armillary.training.prefetch.graphs.partitioning import greedy
from armillary.training.prefetch.simulation.caches import SteeredCache, first_content, scored, static_facts
from armillary.training.prefetch.simulation.machine import Machine
from armillary.training.prefetch.simulation.replay import replay
from armillary.training.prefetch.workload import ORDERS, PrefetchWork, sampled_work

#: Vertices, seeds per minibatch and minibatches of the training graphs.
SCALE, BATCH, MINIBATCHES = 14, 24, 240
FRACTIONS = (0.05, 0.15, 0.25, 0.5)


@dataclass
class RandomPolicy:
    """Replaces at every second question on average, and notes what it saw."""

    rng: np.random.Generator
    seen: list[tuple[float, ...]] = field(default_factory=list)

    def decide(self, static: Static, window: Window, history: History) -> Decision:
        """Heads or tails."""
        self.seen.append(features(static, window, history))
        return Decision(bool(self.rng.integers(2)), reason="at random")


def training_works(seed: int = 0) -> list[PrefetchWork]:
    """Nine works: three small graphs in three orders, with buffers of four sizes in turn."""
    rng = stream(seed, "prefetch", "classifier")
    n = 1 << SCALE
    graphs = [
        rmat(rng, SCALE, edge_factor=12, a=0.5, b=0.2, c=0.2),
        communities(rng, np.full(24, n // 24 + 1), degree=24, inside=0.7, friends=4, befriended=0.2),
        communities(rng, np.full(100, n // 100 + 1), degree=20, inside=0.5, exponent=2.2),
    ]
    made: list[PrefetchWork] = []
    for graph in graphs:
        owner = greedy(graph, 6)
        for order in ORDERS:
            fraction = FRACTIONS[len(made) % len(FRACTIONS)]
            made.append(
                sampled_work(
                    graph, owner, rng, machine=Machine("training"), batch=BATCH, minibatches=MINIBATCHES, order=order, fraction=fraction,
                    train_share=0.1, stands_for=64,
                )
            )  # fmt: skip
    return made


def examples(works: list[PrefetchWork], seed: int = 0, *, period: int = 25, window: int = 25) -> tuple[Floats, Floats]:
    """(rows, labels) of all decisions in these works."""
    rows: list[tuple[float, ...]] = []
    labels: list[bool] = []
    for number, work in enumerate(works):
        policies, caches = [], []
        for trainer in work.trainers:
            policy = RandomPolicy(stream(seed, "prefetch", "examples", str(number), str(trainer.part)))
            buffer = scored(work, trainer, first_content(work, trainer), alpha=0.05, period=period)
            loop = ControlLoop(static_facts(work, trainer, period=period, window=window))
            caches.append(SteeredCache(trainer, buffer, loop, policy, lambda: 0.0))
            policies.append(policy)
        replay(work, caches)
        for policy, cache in zip(policies, caches, strict=True):
            # The last question may have had no minibatch left to apply its answer.
            for seen, row in zip(policy.seen, cache.decisions, strict=False):
                rows.append(seen)
                labels.append(row["saving"] > 0)
    return np.asarray(rows), np.asarray(labels, float)


def train(seed: int = 0) -> tuple[float, ...]:
    """The classifier's weights, to four decimals."""
    rows, labels = examples(training_works(seed), seed)
    return tuple(round(float(w), 4) for w in fit(rows, labels))
