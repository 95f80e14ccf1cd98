"""Which X to set: place with each, and take the one with the shortest modelled steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.scheduling.mesh.cplx import Cplx
from armillary.scheduling.mesh.octree.mesh import Floats, Graph
from armillary.scheduling.mesh.placement.policy import State, checked
from armillary.scheduling.mesh.simulation.machine import Machine

from .model import modelled_step_us

if TYPE_CHECKING:
    from armillary.cluster import Cluster

GRID = (0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0)


@dataclass(frozen=True, eq=False)
class Seen:
    """What was known when blocks were placed, and what the steps with that placement then cost per block."""

    state: State
    costs: tuple[Floats, ...]


def tune(
    costs: npt.ArrayLike, graph: Graph, cluster: Machine | Cluster | str, *, ranks: int | None = None, policy: Cplx | None = None,
    grid: Sequence[float] = GRID,
) -> float:  # fmt: skip
    """The X with the shortest modelled step for these costs (µs per block) and messages; the smallest one on a tie.

    ranks: by default one per core of the cluster's first group of nodes.
    """
    machine = cluster if isinstance(cluster, Machine) else Machine.of(cluster)
    if ranks is None:
        if isinstance(cluster, Machine):
            raise InputError("found a machine without a number of nodes; expected the number of ranks", where="ranks")
        from armillary.cluster import find

        ranks = machine.per_node * int((find(cluster) if isinstance(cluster, str) else cluster).groups[0].count)
    known = checked(costs, ranks)
    if graph.blocks != len(known):
        raise InputError(f"found {len(known)} costs and a graph of {graph.blocks} blocks; expected one cost per block")
    return tuned([Seen(State(known, ranks, graph, machine), (known,))], policy or Cplx(), grid)


def tuned(history: Sequence[Seen], policy: Cplx, grid: Sequence[float] = GRID) -> float:
    """The X with the shortest modelled steps over a history."""
    if not grid or not all(0 <= x <= 100 for x in grid):
        raise InputError("found no X, or one outside 0 to 100; expected percentages", where="grid")
    times = []
    for x in grid:
        total = 0.0
        for seen in history:
            state = seen.state
            placement = policy.at(state, x)
            total += sum(modelled_step_us(costs, placement, state.graph, state.ranks, state.machine) for costs in seen.costs)
        times.append(total)
    return float(grid[int(np.argmin(times))])
