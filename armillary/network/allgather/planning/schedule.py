"""A schedule: every send, receive and local copy of one call, with its place in memory.

Memory has three places: the block that a rank sends, the bytes that it receives, and a stage, which belongs to a rank, or to all ranks of
a node (the node's window). A rank carries out its steps in order: the copies, then the receives and sends, then it waits for these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..graphs.neighbours import Ints, Ranks
from .problem import Problem

if TYPE_CHECKING:
    from .prices import Prices

Places = npt.NDArray[np.int8]

#: The places of memory.
SEND, STAGE, RECV = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Schedule:
    """What all ranks do in one call. Messages and copies are sorted by step; offsets are bytes."""

    name: str
    problem: Problem
    #: Whether a stage belongs to a node rather than to a rank.
    shared: bool
    #: The bytes of each stage.
    stage_bytes: Ints
    #: The number of steps; the last one may consist of copies alone.
    steps: int
    step: Ints
    source: Ranks
    destination: Ranks
    nbytes: Ints
    from_place: Places
    from_at: Ints
    to_place: Places
    to_at: Ints
    copy_step: Ints
    copy_rank: Ranks
    copy_bytes: Ints
    copy_from: Places
    copy_from_at: Ints
    copy_to: Places
    copy_to_at: Ints
    #: What the planner decided, in words.
    why: str = ""
    #: The parameters that it chose, such as the number of paths.
    chosen: dict[str, Any] | None = None

    @property
    def messages(self) -> int:
        """The number of messages, empty ones between ranks of a node included."""
        return len(self.step)

    @cached_property
    def between_nodes(self) -> npt.NDArray[np.bool_]:
        """Whether each message leaves its node."""
        node = self.problem.node_of
        return node[self.source] != node[self.destination]

    @cached_property
    def inter_node_messages(self) -> int:
        """The most messages that any node sends to others."""
        return int(self._sent_by_node(np.ones(self.messages, np.int64)).max(initial=0))

    @cached_property
    def inter_node_bytes(self) -> int:
        """The most bytes that any node sends to others."""
        return int(self._sent_by_node(self.nbytes).max(initial=0))

    def _sent_by_node(self, what: Ints) -> Ints:
        out, node = self.between_nodes, self.problem.node_of
        # Sums of integers, which stay exact where a float's 53 bits might not do.
        found = np.zeros(self.problem.nodes, np.int64)
        np.add.at(found, node[self.source[out]], what[out])
        return found

    def cost(self, cluster: Any = None, prices: Prices | None = None) -> float:
        """The seconds of one call by the model of `planning.cost`, on a cluster (or with prices that were measured)."""
        from .cost import cost
        from .prices import prices_of

        return cost(self, prices if prices is not None else prices_of(cluster, self.problem))

    def explain(self) -> str:
        """What the schedule does, in a few sentences."""
        inside = self.messages - int(self.between_nodes.sum())
        said = (
            f"{self.name}: {self.problem.graph.edges} blocks to deliver between {self.problem.ranks} ranks on {self.problem.nodes} nodes. "
            f"A node sends at most {self.inter_node_messages} messages and {self.inter_node_bytes} bytes to others; "
            f"{inside} messages stay inside their nodes, and ranks copy {int(self.copy_bytes.sum())} bytes in {len(self.copy_step)} pieces."
        )
        return f"{said} {self.why}".strip()
