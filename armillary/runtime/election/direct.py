"""The trade-off without Detect: two agents of one rank are found when they meet, after n/2 units of time on average.

An ablation: what is left is the clock, the reset and the fast, fallible ranking.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from .population.ranking import Ranking
from .subprotocols.agents import constants
from .subprotocols.clocked import Clocked, compiled_class


@functools.cache
def _class() -> type[Clocked]:
    return compiled_class("DirectProtocol", find=False, tokens=False, soft=False)


@dataclass(frozen=True)
class Direct(Ranking):
    """Wait until two agents of one rank meet, and reset then (the trade-off of 2025 without its detection)."""

    def protocol(self, n: int) -> Clocked:
        """The protocol for n agents."""
        return _class()(constants(n, 2, find=False, detect=False))
