"""The oracle runs all strategies and names the fastest, so that no selector can do better.

The virtual best solver of algorithm selection: Rice, The algorithm selection problem, Advances in Computers 15, 1976.
"""

from __future__ import annotations

from dataclasses import dataclass

from .assembling.strategy import Problem, Strategy, strategy
from .selecting.selector import Selector
from .selecting.table import Seconds, measured


@dataclass(frozen=True)
class Oracle(Selector):
    """The best strategy, known after all have run."""

    oracle = True

    def pick(self, problem: Problem, family: str, seconds: Seconds | None = None) -> Strategy:
        return strategy((seconds or measured(problem)).best)
