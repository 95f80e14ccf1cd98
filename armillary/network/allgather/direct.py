"""Direct: one message to every neighbour, as MPI libraries do it.

Every rank posts a receive for each source and a send for each destination, in the order of its lists, and waits for all of them. Blocks
land in their slots, so nothing is copied. The block of a rank crosses to a node as often as ranks there want it.

MPI: A Message-Passing Interface Standard, version 3.0, 2012, neighbourhood collectives; Open MPI and MPICH carry them out like this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.arena import Technique

from .execution.socket import Planned
from .planning.problem import Problem
from .planning.schedule import RECV, SEND, Schedule


@dataclass(frozen=True)
class Direct(Planned, Technique):
    """One message per neighbour."""

    def schedule(self, problem: Problem, prices: Any = None) -> Schedule:
        """Every block straight from its rank into its slot."""
        graph, size = problem.graph, problem.block_bytes
        source, destination = graph.sender, graph.destinations
        # The i-th time that a rank names a destination is the i-th slot in which that destination names the rank.
        said = np.argsort(source.astype(np.int64) * graph.ranks + destination, kind="stable")
        heard = np.argsort(graph.sources.astype(np.int64) * graph.ranks + graph.receiver, kind="stable")
        slot = np.empty(graph.edges, np.int64)
        slot[said] = heard
        to_at = problem.slot_at[slot]
        own = source == destination
        sent = ~own
        count, copied = int(sent.sum()), int((own & (size[source] > 0)).sum())
        copy = np.flatnonzero(own & (size[source] > 0))
        return Schedule(
            "direct", problem, False, np.zeros(graph.ranks, np.int64), 1 if graph.edges else 0,
            np.zeros(count, np.int64), source[sent], destination[sent], size[source[sent]],
            np.full(count, SEND, np.int8), np.zeros(count, np.int64), np.full(count, RECV, np.int8), to_at[sent],
            np.zeros(copied, np.int64), source[copy], size[source[copy]], np.full(copied, SEND, np.int8), np.zeros(copied, np.int64),
            np.full(copied, RECV, np.int8), to_at[copy],
        )  # fmt: skip
