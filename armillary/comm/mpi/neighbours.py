"""Exchanges between neighbours by the calls of the MPI library.

On a periodic axis of length 1 or 2 both neighbours are the same rank, and some libraries swap the two halos there (Intel MPI 2021.18 in
`Neighbor_alltoallw`, Open MPI 5.0 in its persistent form). The library's calls are used on such a box only after a check, in which each
form of the call exchanges stamps of rank and direction. Otherwise messages are used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from armillary.comm.messages.buffers import cut, flat
from armillary.comm.messages.envelope import PROC_NULL
from armillary.comm.messages.layout import Layout
from armillary.comm.mpi.datatypes import by_layout, parts, spec
from armillary.comm.mpi.requests import starter
from armillary.comm.topology.neighbours import Graph, Grid, Neighbourhood

if TYPE_CHECKING:
    from armillary.comm.mpi.ranks import MpiRanks


def native_neighbours(comm: MpiRanks, around: Neighbourhood) -> NativeNeighbours | None:
    """Return the library's neighbourhood of these ranks, or None if messages have to be used."""
    if isinstance(around, Grid):
        if any(wraps and length <= 2 for length, wraps in zip(around.dims, around.periodic)):
            box = (around.dims, around.periodic)
            if box not in comm._right_boxes:
                # Every rank asks, also one that knows its own answer, because all have to choose the same way.
                comm._right_boxes[box] = bool(comm.native.allreduce(int(_keeps_directions(comm, around)), MPI.MIN))
            if not comm._right_boxes[box]:
                return None
        return _box(comm, around)
    # Absent neighbours have no place in the library's graphs, and all ranks have to agree whether there are any.
    absent = comm.native.allreduce(int(PROC_NULL in around.sources + around.destinations), MPI.MAX)
    if absent:
        return None
    weights = around.weights if isinstance(around, Graph) else None
    named = {} if weights is None else {"sourceweights": list(weights[0]), "destweights": list(weights[1])}
    return NativeNeighbours(comm.native.Create_dist_graph_adjacent(list(around.sources), list(around.destinations), **named), around)


def _box(comm: MpiRanks, around: Grid) -> NativeNeighbours:
    return NativeNeighbours(comm.native.Create_cart(around.dims, around.periodic, False), around)


def _keeps_directions(comm: MpiRanks, around: Grid) -> bool:
    """Check that what a rank sends down arrives from above, and the other way round, in every form of the call that is used."""
    slots = len(around.sources)
    sent = np.array([[comm.rank, slot] for slot in range(slots)], np.int64)
    wanted = np.array([[source, slot ^ 1] if source >= 0 else [-1, -1] for slot, source in enumerate(around.sources)], np.int64)
    rows = [Layout.contiguous(2, 2 * slot) for slot in range(slots)]
    room = np.empty_like(sent)
    box = _box(comm, around)
    right = True
    try:
        for call, args in (("neighbor_alltoallv", ([2] * slots, room, [2] * slots)), ("neighbor_alltoallw", (rows, room, rows))):
            room[...] = -1
            box.now(call, sent, *args)
            right &= np.array_equal(room, wanted)
            room[...] = -1
            box.plan(call, sent, *args)()()
            right &= np.array_equal(room, wanted)
    finally:
        box.native.Free()
    return right


class NativeNeighbours:
    """A neighbourhood communicator of the library."""

    def __init__(self, native: Any, around: Neighbourhood) -> None:
        self.native = native
        self._ins = len(around.sources)
        self._outs = len(around.destinations)

    def now(self, call: str, *args: Any) -> None:
        """Make a call."""
        name, given = self._given(call, *args)
        getattr(self.native, name)(*given)

    def plan(self, call: str, *args: Any) -> Callable[[], Callable[[], Any]]:
        """Prepare a call and return the function that starts it, which returns the function that waits for it."""
        name, given = self._given(call, *args)
        return starter(self.native, name, given)

    def _given(self, call: str, send: Any, *rest: Any) -> tuple[str, tuple[Any, Any]]:
        ins, outs = self._ins, self._outs
        if call == "neighbor_alltoallw":
            sendlayouts, recv, recvlayouts = rest
            return "Neighbor_alltoallw", (by_layout(send, sendlayouts), by_layout(recv, recvlayouts))
        mine = flat(send, "send")
        if call == "neighbor_allgather":
            room = flat(rest[0], "recv", writable=True)
            return "Neighbor_allgather", (spec(mine), [room, mine.size, spec(room)[2]])
        if call == "neighbor_allgatherv":
            recv, counts, starts = (*rest, None)[:3]
            room = flat(recv, "recv", writable=True)
            return "Neighbor_allgatherv", (spec(mine), parts(cut(room, counts, starts, ins, "recv")))
        if call == "neighbor_alltoall":
            room = flat(rest[0], "recv", writable=True)
            count = mine.size // outs if outs else room.size // max(ins, 1)
            sends, recvs = cut(mine, [count] * outs, None, outs, "send"), cut(room, [count] * ins, None, ins, "recv")
        else:
            sendcounts, recv, recvcounts, sendstarts, recvstarts = (*rest, None, None)[:5]
            room = flat(recv, "recv", writable=True)
            sends, recvs = cut(mine, sendcounts, sendstarts, outs, "send"), cut(room, recvcounts, recvstarts, ins, "recv")
        return "Neighbor_alltoallv", (parts(sends), parts(recvs))
