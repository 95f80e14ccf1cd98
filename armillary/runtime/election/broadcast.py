"""Detect for every rank at once: every agent hands out tokens at all times, so no rank need be suspected first. Our own variant.

There are n places for tokens and n ranks, so a rank has about one token out, and a second agent of its rank meets that token or its
double. A proof then takes about n/6 instead of n/2, for any n, without FindTarget's phases.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from armillary.arena import parameter

from .population.ranking import Ranking
from .subprotocols.agents import constants
from .subprotocols.clocked import Clocked, compiled_class
from .tradeoff import checked_rho


@functools.cache
def _class() -> type[Clocked]:
    return compiled_class("BroadcastProtocol", find=False, tokens=True, soft=False)


@dataclass(frozen=True)
class Broadcast(Ranking):
    """Every rank is watched by tokens at all times (a variant of the trade-off of 2025 that is ours)."""

    rho: int = parameter(2, "tokens that one agent can have out, at most √n", range=(2, 1024))

    def protocol(self, n: int) -> Clocked:
        """The protocol for n agents."""
        return _class()(constants(n, checked_rho(self.rho, n), find=False, detect=False, broadcast=True))
