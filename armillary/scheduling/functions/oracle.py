"""DHRT's choice with the truth: how long each call will take on each node type with each size, with the most that contention may add.

It knows the noise of each call and not the calls to come, so it is a measure of what better estimates could bring, not a bound.

The choice is that of DHRT, IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .dhrt import Dhrt
from .planning.policy import TRUTH, Policy
from .workload import FunctionsWork


@dataclass(frozen=True)
class Oracle(Technique):
    """DHRT's choice, by the truth."""

    oracle = True

    def policy(self, work: FunctionsWork) -> Policy:
        """The rules that the play follows."""
        return Dhrt().policy(work)._replace(knowledge=TRUTH, explore=0.0)
