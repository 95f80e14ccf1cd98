"""Exchanges between neighbours as the MPI library does them.

Boxes with a periodic axis of length 1 or 2, where both neighbours along it are one rank, stay with messages: some libraries swap the two
halos there (Intel MPI 2021.18 in `Neighbor_alltoallw`, Open MPI 5.0 in its persistent form).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from armillary.comm.buffers import cut, flat
from armillary.comm.message import PROC_NULL
from armillary.comm.mpi import _by_layout, _parts, _spec, _starter
from armillary.comm.neighbours import Graph, Grid, Neighbourhood

if TYPE_CHECKING:
    from armillary.comm.mpi import MpiRanks


def native_neighbours(comm: MpiRanks, around: Neighbourhood) -> NativeNeighbours | None:
    """The library's neighbourhood of these ranks; None where messages do it."""
    if isinstance(around, Grid):
        if any(wraps and length <= 2 for length, wraps in zip(around.dims, around.periodic)):
            return None
        return NativeNeighbours(comm.native.Create_cart(around.dims, around.periodic, False), around)
    # Absent neighbours have no place in the library's graphs; whether there are any must be the same on every rank.
    absent = comm.native.allreduce(int(PROC_NULL in around.sources + around.destinations), MPI.MAX)
    if absent:
        return None
    weights = around.weights if isinstance(around, Graph) else None
    named = {} if weights is None else {"sourceweights": list(weights[0]), "destweights": list(weights[1])}
    return NativeNeighbours(comm.native.Create_dist_graph_adjacent(list(around.sources), list(around.destinations), **named), around)


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
        """What starts a prepared call and gives what waits for it."""
        name, given = self._given(call, *args)
        return _starter(self.native, name, given)

    def _given(self, call: str, send: Any, *rest: Any) -> tuple[str, tuple[Any, Any]]:
        ins, outs = self._ins, self._outs
        if call == "neighbor_alltoallw":
            sendlayouts, recv, recvlayouts = rest
            return "Neighbor_alltoallw", (_by_layout(send, sendlayouts), _by_layout(recv, recvlayouts))
        mine = flat(send, "send")
        if call == "neighbor_allgather":
            room = flat(rest[0], "recv", writable=True)
            return "Neighbor_allgather", (_spec(mine), [room, mine.size, _spec(room)[2]])
        if call == "neighbor_allgatherv":
            recv, counts, starts = (*rest, None)[:3]
            room = flat(recv, "recv", writable=True)
            return "Neighbor_allgatherv", (_spec(mine), _parts(cut(room, counts, starts, ins, "recv")))
        if call == "neighbor_alltoall":
            room = flat(rest[0], "recv", writable=True)
            count = mine.size // outs if outs else room.size // max(ins, 1)
            sends, recvs = cut(mine, [count] * outs, None, outs, "send"), cut(room, [count] * ins, None, ins, "recv")
        else:
            sendcounts, recv, recvcounts, sendstarts, recvstarts = (*rest, None, None)[:5]
            room = flat(recv, "recv", writable=True)
            sends, recvs = cut(mine, sendcounts, sendstarts, outs, "send"), cut(room, recvcounts, recvstarts, ins, "recv")
        return "Neighbor_alltoallv", (_parts(sends), _parts(recvs))
