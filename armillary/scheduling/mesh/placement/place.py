"""`place`: costs in, ranks out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from armillary.errors import InputError, unknown
from armillary.parameters import with_parameters
from armillary.scheduling.mesh.octree.mesh import Graph, Ints
from armillary.scheduling.mesh.placement.policy import Policy, State, checked
from armillary.scheduling.mesh.simulation.machine import Machine

if TYPE_CHECKING:
    from armillary.cluster import Cluster


def place(
    costs: npt.ArrayLike, ranks: int, policy: str | Policy = "cplx", *, graph: Graph | None = None, cluster: Machine | Cluster | str = "",
    **parameters: Any,
) -> Ints:  # fmt: skip
    """The rank of each block.

    costs: µs (or any unit) per block, in the order of the space-filling curve. policy: a policy, or a name with parameters:
    `place(costs, 512, "cplx", x=25)`. graph: the messages between blocks, which `metis` needs.
    """
    from armillary.scheduling.mesh.arena import mesh

    if isinstance(policy, str):
        if policy not in mesh.techniques:
            raise unknown("policy", policy, mesh.techniques)
        made: Any = with_parameters(mesh.technique(policy), parameters, where=policy)
    else:
        if parameters:
            raise InputError(f"found the parameters {', '.join(parameters)}; expected them in the policy itself")
        made = policy
    known = checked(costs, ranks)
    if graph is None:
        if policy == "metis":
            raise InputError("metis partitions a graph: expected the messages between blocks as `graph`")
        graph = Graph.empty(len(known))
    if graph.blocks != len(known):
        raise InputError(f"found {len(known)} costs and a graph of {graph.blocks} blocks; expected one cost per block")
    machine = cluster if isinstance(cluster, Machine) else Machine.of(cluster) if cluster else Machine()
    return made.session().place(State(known, ranks, graph, machine))
