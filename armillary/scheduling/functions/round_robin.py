"""The owner's size on the next node in turn that has room.

Turns go back to On packet switches with infinite storage, IEEE Transactions on Communications 1987.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .planning.policy import ROUND_ROBIN, Policy
from .workload import FunctionsWork


@dataclass(frozen=True)
class RoundRobin(Technique):
    """The owner's size, node after node."""

    def policy(self, work: FunctionsWork) -> Policy:
        """The rules that the play follows."""
        return Policy(place=ROUND_ROBIN)
