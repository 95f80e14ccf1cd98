"""A good engineer without a scheduler of his own: each function has the size that meets nearly all of its deadlines on a standard node.

The size meets the deadline that 95 % of the calls have or exceed. Calls come by deadline, and one that would be late even if it started
now on a standard node runs last. The rival is ours: the published baselines size for the median deadline, which half of the calls beat.

Scheduling algorithms for multiprogramming in a hard-real-time environment, Journal of the ACM 1973.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique, parameter

from .planning.policy import EARLIEST_DEADLINE, TIGHT, Policy
from .workload import FunctionsWork


@dataclass(frozen=True)
class EdfTuned(Technique):
    """The size for tight deadlines, by deadlines."""

    late_last: bool = parameter(True, "whether calls that cannot be in time run last")

    def policy(self, work: FunctionsWork) -> Policy:
        """The rules that the play follows."""
        return Policy(size=TIGHT, order=EARLIEST_DEADLINE, give_up=1.0 if self.late_last else -1.0)
