"""What a plan is made for: the graph, the node of each rank, and the bytes of each rank's block."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

from ..graphs.neighbours import Ints, Neighbours, Ranks

#: The most bytes of one block, and of all blocks that a rank receives.
MOST_BLOCK_BYTES = 1 << 36
MOST_RECEIVED_BYTES = 1 << 52


@dataclass(frozen=True, eq=False)
class Problem:
    """The graph with a node and a block size for each rank. Nodes are numbered from 0 in the order of their distance."""

    graph: Neighbours
    #: The node of each rank.
    node_of: Ranks
    #: The bytes of each rank's block.
    block_bytes: Ints

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.graph.ranks

    @cached_property
    def nodes(self) -> int:
        """The number of nodes."""
        return int(self.node_of.max()) + 1

    @cached_property
    def local(self) -> list[Ranks]:
        """The ranks of each node, ascending."""
        order = np.argsort(self.node_of, kind="stable").astype(np.int32)
        return [np.ascontiguousarray(part) for part in np.split(order, np.cumsum(np.bincount(self.node_of, minlength=self.nodes))[:-1])]

    @cached_property
    def most_local(self) -> int:
        """The number of ranks of the fullest node."""
        return max(len(ranks) for ranks in self.local)

    @cached_property
    def needed_on(self) -> npt.NDArray[np.bool_]:
        """`needed_on[s, v]`: whether some rank of node v receives the block of rank s."""
        found = np.zeros((self.ranks, self.nodes), bool)
        found[self.graph.sources, self.node_of[self.graph.receiver]] = True
        return found

    @cached_property
    def received_bytes(self) -> Ints:
        """Where the slots of all ranks end in the bytes that they receive, from 0: one more entry than there are slots."""
        return np.concatenate(([0], np.cumsum(self.block_bytes[self.graph.sources]))).astype(np.int64)

    @cached_property
    def received_pieces(self) -> Ints:
        """The pieces in which each rank receives, if blocks of ranks that follow each other on a node come one behind the other."""
        sources = self.graph.sources.astype(np.int64)
        begins = np.ones(len(sources) + 1, bool)
        begins[1:-1] = (sources[1:] != sources[:-1] + 1) | (self.node_of[sources[1:]] != self.node_of[sources[:-1]])
        begins[self.graph.in_start] = True
        ends = np.concatenate(([0], np.cumsum(begins[:-1])))
        return np.asarray(np.diff(ends[self.graph.in_start]), np.int64)

    @cached_property
    def slot_at(self) -> Ints:
        """Where each slot begins in the buffer of its rank."""
        begins = self.received_bytes[:-1]
        return begins - self.received_bytes[self.graph.in_start[:-1]].repeat(np.diff(self.graph.in_start))


def problem(graph: Neighbours, placement: Any, block_bytes: Any) -> Problem:
    """The problem with these nodes (one for each rank, or the number of ranks per node) and block sizes (one for all, or one each).

    Nodes may have any numbers; they keep their order.
    """
    ranks = graph.ranks
    if isinstance(placement, int | np.integer) and not isinstance(placement, bool):
        if placement < 1:
            raise InputError(f"placement: found {placement} ranks per node; expected at least 1")
        nodes = np.arange(ranks) // placement
    else:
        given = np.asarray(placement)
        if given.shape != (ranks,) or given.dtype.kind not in "iu":
            raise InputError(f"placement: found {given.dtype} of shape {given.shape}; expected a node for each of the {ranks} ranks")
        nodes = np.unique(given, return_inverse=True)[1]
    given = np.asarray(block_bytes)
    if given.dtype.kind not in "iu" or given.shape not in ((), (ranks,)):
        raise InputError(f"block_bytes: found {given.dtype} of shape {given.shape}; expected bytes, one number or {ranks}")
    sizes = np.broadcast_to(given, (ranks,))
    wrong = (sizes < 0) | (sizes > MOST_BLOCK_BYTES)
    if wrong.any():
        rank = int(np.argmax(wrong))
        raise InputError(f"block_bytes: found {sizes[rank]} of rank {rank}; expected 0 to {MOST_BLOCK_BYTES}")
    if float(sizes.astype(np.float64)[graph.sources].sum()) > MOST_RECEIVED_BYTES:
        raise InputError(f"block_bytes: found more than {MOST_RECEIVED_BYTES} bytes to receive; expected fewer")
    return Problem(graph, nodes.astype(np.int32), np.ascontiguousarray(sizes, np.int64))
