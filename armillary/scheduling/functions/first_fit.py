"""The owner's size on the first node of the list that has room, which packs calls together.

Worst-case performance bounds for simple one-dimensional packing algorithms, SIAM Journal on Computing 1974.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .planning.policy import FIRST_FIT, Policy
from .workload import FunctionsWork


@dataclass(frozen=True)
class FirstFit(Technique):
    """The owner's size, packed."""

    def policy(self, work: FunctionsWork) -> Policy:
        """The rules that the play follows."""
        return Policy(place=FIRST_FIT)
