"""Auto: plan with every technique, play each plan through on a model of this machine, and keep the best one.

The model is the compiled loop of `execution.replay`, with the prices of a cluster, or with those that three short probes measured on live
ranks. Counting alone (`Schedule.cost`) would be cheaper, but it sees no overlap of steps and so misjudges plans that differ little.

Choosing by a model of the machine goes back to Thakur, Rabenseifner, Gropp, Optimization of Collective Communication Operations in MPICH,
2005; the model and the choice are our design.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from armillary.arena import Technique
from armillary.errors import InputError

from .cascade import Cascade
from .common_neighbour import CommonNeighbour
from .direct import Direct
from .distance_halving import DistanceHalving
from .execution.replay import replay
from .execution.socket import Planned
from .node_aware import NodeAware
from .planning.prices import Prices
from .planning.problem import Problem
from .planning.schedule import Schedule

#: The techniques that it chooses among; at equal times the first wins.
CHOICES = {
    "direct": Direct, "node-aware": NodeAware, "common-neighbour": CommonNeighbour, "distance-halving": DistanceHalving, "cascade": Cascade,
}  # fmt: skip


@dataclass(frozen=True)
class Auto(Planned, Technique):
    """The plan that the model finds fastest."""

    def schedule(self, problem: Problem, prices: Any = None) -> Schedule:
        """The best schedule of five, with the times of all in its words."""
        if prices is None:
            raise InputError("found no cluster; expected one, because the choice depends on it", where="auto")
        best, least, times = None, float("inf"), {}
        for name, technique in CHOICES.items():
            made = technique().schedule(problem, prices)
            times[name] = float(replay(made, prices).max())
            if times[name] < least:
                best, least = made, times[name]
        assert best is not None
        said = ", ".join(f"{name} {1e6 * seconds:.1f}" for name, seconds in sorted(times.items(), key=lambda item: item[1]))
        return replace(
            best, why=f"{best.why} Chosen by modelled us: {said}.".strip(), chosen={**(best.chosen or {}), "technique": best.name}
        )

    def promise(self, schedule: Schedule, prices: Prices) -> float:
        """The seconds by which it chose."""
        return float(replay(schedule, prices).max())
