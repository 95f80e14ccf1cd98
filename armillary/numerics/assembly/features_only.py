"""Gradient-boosted trees on the 36 features, without the pictures, show how far a plain learner comes. They need scikit-learn.

There is one regressor for each strategy's log-seconds, learned from the measured table without the case's family.

Friedman: Greedy function approximation: a gradient boosting machine, Annals of Statistics 29, 2001.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary import extras
from armillary.parameters import parameter

from .assembling.strategy import STRATEGIES, Problem, Strategy, strategy
from .selecting.choice import shipped_table
from .selecting.features import features
from .selecting.selector import Selector
from .selecting.table import Seconds, Table, fold_of


@dataclass(frozen=True)
class FeaturesOnly(Selector):
    """Chooses by boosted trees on the numbers alone."""

    trees: int = parameter(200, "the number of trees per strategy", range=(1, 10_000))
    depth: int = parameter(3, "the largest depth of a tree", range=(1, 20))
    rate: float = parameter(0.05, "the learning rate", range=(1e-4, 1))

    def pick(self, problem: Problem, family: str, seconds: Seconds | None = None) -> Strategy:
        learned = _learned(fold_of(family), self.trees, self.depth, self.rate)
        numbers = features(problem).numbers.reshape(1, -1)
        return strategy(list(STRATEGIES)[int(np.argmin([float(one.predict(numbers)[0]) for one in learned]))])


@functools.lru_cache(maxsize=8)
def _learned(fold: int, trees: int, depth: int, rate: float) -> list[Any]:
    return boosted(shipped_table().without(fold), trees, depth, rate)


def boosted(table: Table, trees: int = 200, depth: int = 3, rate: float = 0.05) -> list[Any]:
    """Trains a regressor of log-seconds for each strategy."""
    ensemble = extras.need("sklearn.ensemble")
    made = []
    for k in range(len(STRATEGIES)):
        one = ensemble.GradientBoostingRegressor(n_estimators=trees, max_depth=depth, learning_rate=rate, random_state=0)
        made.append(one.fit(table.numbers, table.log_seconds[:, k]))
    return made
