"""The schedule that the user brought, run as it is, beside what the techniques would do with the same layers.

Its stages are cut from the layers so that the longest is as short as can be. Files are those of torch.distributed.pipelining, 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import NotForThisCase, Technique

from .planning.layers import Division, LayeredWork, StagePlan
from .planning.partition import balanced_cuts
from .simulation.simulator import simulate


@dataclass(frozen=True)
class Given(Technique):
    """The user's own schedule file, without recomputation. torch.distributed.pipelining, 2024."""

    def plan(self, work: LayeredWork) -> StagePlan:
        """The user's schedule on balanced stages; it promises what it takes without transfers."""
        if getattr(work, "given", None) is None:
            raise NotForThisCase("the work brings no schedule of its own")
        assert work.given is not None
        division = Division.uniform(work.layers, balanced_cuts(work.layers, work.given.stages))
        return StagePlan(division, work.given, simulate(work.given, division.costs()).makespan, "given")
