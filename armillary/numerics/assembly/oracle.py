"""The oracle runs all strategies and names the fastest: what no selector can pass.

The virtual best solver of algorithm selection: Rice, The algorithm selection problem, Advances in Computers 15, 1976.
"""

from __future__ import annotations

from dataclasses import dataclass

from .selector import Selector
from .strategy import Problem, Strategy, strategy
from .table import Seconds, measured


@dataclass(frozen=True)
class Oracle(Selector):
    """The best of all, known afterwards."""

    oracle = True

    def pick(self, problem: Problem, family: str, seconds: Seconds | None = None) -> Strategy:
        return strategy((seconds or measured(problem)).best)
