"""The owner's size, with the earliest deadline first. A call whose deadline has passed runs last, so that it delays nobody else.

Scheduling algorithms for multiprogramming in a hard-real-time environment, Journal of the ACM 1973.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique, parameter

from .planning.policy import EARLIEST_DEADLINE, Policy
from .workload import FunctionsWork


@dataclass(frozen=True)
class EdfFixed(Technique):
    """The owner's size, by deadlines."""

    late_last: bool = parameter(True, "whether calls whose deadlines have passed run last")

    def policy(self, work: FunctionsWork) -> Policy:
        """The rules that the play follows."""
        return Policy(order=EARLIEST_DEADLINE, give_up=0.0 if self.late_last else -1.0)
