"""What a technique decides, in a form that the compiled loop follows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

#: Which node takes a pod: the least allocated, the most allocated, or the one with the best green score.
LEAST, MOST, GREEN = range(3)
#: When a pod that may wait starts: now, in the window with the most sun, while there is power to spare, or where it fills the budget.
NOW, WINDOW, SURPLUS, BUDGET = range(4)


class Policy(NamedTuple):
    """One technique's rules."""

    place: int = LEAST
    when: int = NOW
    #: Whether nodes without pods are switched off, and after how many slots.
    sleep: bool = False
    idle_off: int = 10
    #: Whether nodes accept by estimated usage: up to `kappa` of their cores, and requests up to `ratio` times their cores.
    oversubscribe: bool = False
    kappa: float = 0.95
    ratio: float = 2.0
    #: Standard deviations above the mean usage, by tier.
    z: npt.NDArray[np.float64] = np.array([2.33, 1.65, 1.0, 0.5])
    #: Whether nodes that are used less than `drain_below` are emptied.
    consolidate: bool = False
    drain_below: float = 0.2
    #: Weights of added energy, green cover, packing and coolness in a node's score.
    weights: npt.NDArray[np.float64] = np.array([0.4, 0.3, 0.2, 0.1])
    #: Share of the covered energy that an hour of delay costs.
    discount: float = 0.02
    #: Forecast watts [cell, cells ahead].
    forecast: npt.NDArray[np.float64] = np.zeros((1, 1))
