"""DHRT's choice with an offline profile: the mean and the spread of every function on every node type with every size are known.

It shows what learning from live runs costs, and is no rival: somebody must have run everything beforehand.

Profiles of all sizes are taken offline in ORION and the three rights: sizing, bundling, and prewarming for serverless DAGs, OSDI 2022.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .dhrt import Dhrt
from .planning.policy import PROFILED, Policy
from .workload import FunctionsWork


@dataclass(frozen=True)
class Profiled(Technique):
    """DHRT's choice, by an offline profile."""

    def policy(self, work: FunctionsWork) -> Policy:
        """The rules that the play follows."""
        return Dhrt().policy(work)._replace(knowledge=PROFILED, explore=0.0)
