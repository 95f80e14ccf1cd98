"""Common neighbours: ranks of a group exchange their blocks first, and one of them sends for all who share a destination.

Groups are K ranks that follow each other in the order of the nodes. If two or more ranks of a group send to the same rank outside, the one
among them that has the fewest bytes to send so far does it for all, in one message. The others hand it their blocks before that, once for
all the destinations for which it sends. What nobody shares goes directly.

Ghazimirsaeed, Mirsadeghi, Afsahi, An Efficient Collaborative Communication Mechanism for MPI Neighborhood Collectives, IPDPS 2019. The
choice by bytes and groups of neighbours in the order of nodes are our design.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.arena import Technique, parameter
from armillary.kernels import loop

from .execution.socket import Planned
from .planning.places import laid_out
from .planning.problem import Problem
from .planning.schedule import Schedule
from .planning.traffic import Traffic, groups


@dataclass(frozen=True)
class CommonNeighbour(Planned, Technique):
    """Exchange in groups of K, then one message per group and shared neighbour."""

    k: int = parameter(4, "ranks of a group", range=(1, 64))

    def schedule(self, problem: Problem, prices: Any = None) -> Schedule:
        """Step 0 exchanges inside the groups, step 1 sends to all others."""
        graph, traffic = problem.graph, Traffic()
        order = np.argsort(problem.node_of, kind="stable")
        group_of = np.empty(graph.ranks, np.int64)
        group_of[order] = np.arange(graph.ranks) // self.k
        give, take = graph.sender.astype(np.int64), graph.destinations.astype(np.int64)
        pairs = np.unique(give * graph.ranks + take)
        give, take = pairs // graph.ranks, pairs % graph.ranks
        inside = (group_of[give] == group_of[take]) & (give != take)
        outside = group_of[give] != group_of[take]
        give_out, take_out = give[outside], take[outside]
        # The destinations of a group begin behind the group, so that not all groups begin with rank 0.
        ahead = (take_out - order[group_of[give_out] * self.k]) % graph.ranks
        ordered, starts = groups(group_of[give_out] * graph.ranks + ahead)
        by_group = give_out[ordered].astype(np.int64)
        chosen = _chosen(starts, by_group, problem.block_bytes, np.zeros(graph.ranks, np.int64))
        carrier = np.repeat(chosen, np.diff(starts))
        # Who hands its block to whom: by edges inside the group, and to the carriers.
        handed = by_group != carrier
        keys = np.concatenate((give[inside] * graph.ranks + take[inside], by_group[handed] * graph.ranks + carrier[handed]))
        keys = np.unique(keys)
        traffic.add(0, keys // graph.ranks, keys % graph.ranks, np.ones(len(keys)), keys // graph.ranks)
        if len(chosen):
            traffic.add(1, chosen, take_out[ordered][starts[:-1]], np.diff(starts), by_group)
        return laid_out("common-neighbour", problem, traffic.messages(), shared=False)


@loop
def _chosen(starts, sharers, size, load):  # type: ignore[no-untyped-def]
    """For each destination of a group, the sharer with the fewest bytes so far; each message also counts as 256 bytes."""
    found = np.empty(len(starts) - 1, np.int64)
    for i in range(len(starts) - 1):
        best, nbytes = -1, 0
        for j in range(starts[i], starts[i + 1]):
            nbytes += size[sharers[j]]
            if best < 0 or load[sharers[j]] < load[best]:
                best = sharers[j]
        found[i] = best
        load[best] += nbytes + 256
    return found
