"""Break-even: keep a pod until the expected carbon of waiting longer outweighs the cold start that it would save.

From the function's own histogram of gaps it computes, for each edge T of the histogram, the expected cost
`(1 − λ)·L/L̄·P(gap > T) + λ·P_idle·CI/C̄·E[min(gap, T)]`, and takes the T at which it is least. There the two marginal costs are equal, and
of several such T it takes the best. It knows all that LACE-RL knows and learns nothing.

Renting or buying with a known distribution is a classic problem: Competitive Randomized Algorithms for Nonuniform Problems, Algorithmica
1994. Its use here is our design.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .simulation.decisions import BREAK_EVEN
from .simulation.play import Policy
from .workload import KeepAliveWork


@dataclass(frozen=True)
class BreakEven(Technique):
    """The keep-alive with the least expected cost."""

    weighs = True

    def policy(self, work: KeepAliveWork) -> Policy:
        """The cheapest edge of each function's histogram, at every decision."""
        return Policy(BREAK_EVEN)
