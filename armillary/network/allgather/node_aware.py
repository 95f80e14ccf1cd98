"""Node-aware: a block crosses to another node once, however many ranks want it there.

The ranks of a node put their blocks into a window that they share. For each other node one of them sends a single message with all blocks
that somebody needs there; on arrival every rank copies what it wants out of its window. The pairs of nodes are dealt to the ranks in turn.

Node-aware communication for irregular exchanges: Bienz, Gropp, Olson, Node aware sparse matrix-vector multiplication, 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from armillary.arena import Technique

from .execution.socket import Planned
from .planning.places import laid_out
from .planning.problem import Problem
from .planning.schedule import Schedule
from .planning.traffic import Traffic


@dataclass(frozen=True)
class NodeAware(Planned, Technique):
    """One de-duplicated message per pair of nodes."""

    def schedule(self, problem: Problem, prices: Any = None) -> Schedule:
        """Gather in the window, one message to each node that needs something, deliver from the window."""
        traffic, nodes, needed = Traffic(), problem.nodes, problem.needed_on
        step = traffic.barrier(0, problem)
        for ahead in range(1, nodes):
            for u in range(nodes):
                v = (u + ahead) % nodes
                local, there = problem.local[u], problem.local[v]
                blocks = local[needed[local, v]]
                if len(blocks):
                    traffic.add(step, local[(ahead - 1) % len(local)], there[(ahead - 1) % len(there)], len(blocks), blocks)
        if nodes > 1:
            traffic.barrier(step + 1, problem)
        return laid_out("node-aware", problem, traffic.messages(), shared=True)
