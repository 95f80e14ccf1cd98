"""The owner's size on a random node that has room.

It is the baseline of The power of two choices in randomized load balancing, IEEE Transactions on Parallel and Distributed Systems 2001.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .planning.policy import RANDOM, Policy
from .workload import FunctionsWork


@dataclass(frozen=True)
class FixedRandom(Technique):
    """The owner's size, placed at random."""

    def policy(self, work: FunctionsWork) -> Policy:
        """The rules that the play follows."""
        return Policy(place=RANDOM)
