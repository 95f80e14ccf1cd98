"""Bandit: two arms, and an upper confidence bound on what a request costs.

At each look the mean latency since the last look, times a power of its pod's price, is one observation of the current arm. Observations are
discounted, because the best arm changes, and the arm with the lowest lower bound is taken: mean − ξ·B·√(ln N / n), in which n is the
discounted number of an arm's observations, N that of both, and B the larger of the two means. An arm is kept for `dwell_s` at least,
because a switch costs a cold start. Requests that waited for a pod to start do not count.
Defaults are the best of a sweep on training draws.

Discounted UCB: On Upper-Confidence Bound Policies for Switching Bandit Problems, ALT 2011. The weighting with prices is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.arena import Technique, parameter
from armillary.kernels import loop

from .functions.curves import PRICES
from .simulation.policy import BACKEND, BANDIT, COUNT, GPU_UP, MEAN_MS, NOW_S, Policy

#: Places in the state, after the mode: discounted numbers and sums of observations by arm, the time of the last switch, the choice.
_NUMBER, _SUM, _SINCE, _BEGUN, _CHOICE = 1, 3, 5, 6, 7


@dataclass(frozen=True)
class Bandit(Technique):
    """A discounted upper confidence bound on latency times price."""

    takes: ClassVar[frozenset[str]] = frozenset({"requests"})

    cost_weight: float = parameter(0.5, "exponent of the price: 1 weighs latency by it, 0 ignores it", range=(0.0, 4.0))
    discount: float = parameter(0.95, "weight of an observation relative to the next one", range=(0.5, 1.0))
    explore: float = parameter(0.03, "ξ, the weight of the confidence bound", range=(0.0, 10.0))
    dwell_s: float = parameter(60.0, "an arm is kept so long at least", range=(0.0, 1e7))
    interval_s: float = parameter(30.0, "seconds between two looks", range=(1.0, 1e6))

    def policy(self, prices: tuple[float, float] = PRICES) -> Policy:
        """The procedure inside the compiled loop."""
        dearer = (prices[1] / prices[0]) ** self.cost_weight
        return Policy(BANDIT, np.array([1.0, dearer, self.discount, self.explore, self.dwell_s]), interval_s=self.interval_s)


@loop
def decide(settings, state, view):  # type: ignore[no-untyped-def]
    """The backend that the function should be on."""
    cur = int(view[BACKEND])
    if state[_BEGUN] == 0 or cur != int(state[_CHOICE]):
        # The first look, or the platform moved the function because its device was lost.
        state[_BEGUN], state[_CHOICE], state[_SINCE] = 1.0, cur, view[NOW_S] if state[_BEGUN] > 0 else 0.0
    if view[COUNT] > 0:
        for arm in range(2):
            state[_NUMBER + arm] *= settings[2]
            state[_SUM + arm] *= settings[2]
        state[_NUMBER + cur] += 1.0
        state[_SUM + cur] += view[MEAN_MS] * settings[cur]
    other = 1 - cur
    if view[NOW_S] - state[_SINCE] < settings[4] or state[_NUMBER + cur] == 0 or (other == 1 and view[GPU_UP] == 0):
        return cur
    if state[_NUMBER + other] > 0:
        here, there = state[_SUM + cur] / state[_NUMBER + cur], state[_SUM + other] / state[_NUMBER + other]
        width = settings[3] * max(here, there)
        spread = math.log(max(1.0, state[_NUMBER] + state[_NUMBER + 1]))
        if there - width * math.sqrt(spread / state[_NUMBER + other]) >= here - width * math.sqrt(spread / state[_NUMBER + cur]):
            return cur
    state[_CHOICE], state[_SINCE] = other, view[NOW_S]
    return other
