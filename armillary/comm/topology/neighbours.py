"""Neighbourhoods: boxes and graphs of ranks, in which each rank exchanges with a few others.

A 2-D box with this rank in the middle has its slots in the order of MPI:

              0 (axis 0, down)
        2 (axis 1, down)  rank  3 (axis 1, up)
              1 (axis 0, up)

What a rank sends down along an axis arrives at the neighbour as coming from above, and the other way round. Each message carries the slot
where it belongs, so this holds also where both neighbours are the same rank (periodic axes of length 1 or 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from armillary.comm.communicator import Communicator
from armillary.comm.messages.buffers import Array, Buffer, array_of, cut, flat
from armillary.comm.messages.envelope import PROC_NULL, check_rank
from armillary.comm.messages.requests import Request, waitall
from armillary.comm.plans import Plan
from armillary.errors import InputError

_PLANNED = ("neighbor_allgather", "neighbor_allgatherv", "neighbor_alltoall", "neighbor_alltoallv", "neighbor_alltoallw")


class Neighbourhood:
    """A communicator of its own with sources and destinations. Slots of `PROC_NULL` send and receive nothing.

    Every `neighbor_...` call has a form `neighbor_..._init` that returns a `Plan`.
    """

    def __init__(self, comm: Communicator, sources: Sequence[int], destinations: Sequence[int], tags: Sequence[int]) -> None:
        self.comm = comm
        self.rank = comm.rank
        self.size = comm.size
        #: The rank behind each slot that this rank receives from.
        self.sources = tuple(int(r) for r in sources)
        #: The rank behind each slot that this rank sends to.
        self.destinations = tuple(int(r) for r in destinations)
        for rank in (*self.sources, *self.destinations):
            check_rank(rank, comm.size, "neighbour")
        #: The slot at the other end for each slot that this rank sends to; all 0 where order alone decides.
        self._tags = tuple(tags)
        self._native = comm._neighbours(self)

    def neighbor_allgather(self, send: Buffer, recv: Buffer = None) -> Buffer:
        """Send the same buffer to every destination and receive one row from each source. Rows of absent neighbours stay as they are."""
        return self._now("neighbor_allgather", send, recv)

    def neighbor_allgatherv(self, send: Buffer, recv: Buffer, counts: Any, displacements: Any = None) -> Buffer:
        """Do `neighbor_allgather` with `counts[i]` elements from source i."""
        return self._now("neighbor_allgatherv", send, recv, counts, displacements)

    def neighbor_alltoall(self, send: Buffer, recv: Buffer = None) -> Buffer:
        """Send row i to destination i and receive row i of the answer from source i."""
        return self._now("neighbor_alltoall", send, recv)

    def neighbor_alltoallv(
        self, send: Buffer, sendcounts: Any, recv: Buffer, recvcounts: Any, senddisplacements: Any = None, recvdisplacements: Any = None
    ) -> Buffer:
        """Do `neighbor_alltoall` with blocks of the given lengths for and from each neighbour."""
        return self._now("neighbor_alltoallv", send, sendcounts, recv, recvcounts, senddisplacements, recvdisplacements)

    def neighbor_alltoallw(self, send: Array, sendlayouts: Sequence[Any], recv: Array, recvlayouts: Sequence[Any]) -> Array:
        """Exchange with one Layout per neighbour, a halo exchange without a copy in the program. None stands for no exchange."""
        found: Array = self._now("neighbor_alltoallw", send, sendlayouts, recv, recvlayouts)
        return found

    def exchange(self, blocks: Sequence[Array]) -> list[Array]:
        """Send a one-dimensional array of any length to each destination and return what each source sent. The lengths travel first."""
        if len(blocks) != len(self.destinations):
            raise InputError(f"exchange: found {len(blocks)} blocks; expected one for each of the {len(self.destinations)} destinations")
        dtype = blocks[0].dtype if blocks else np.dtype(np.uint8)
        if any(block.dtype != dtype or block.ndim != 1 for block in blocks):
            raise InputError("exchange: found blocks of several types or dimensions; expected one-dimensional blocks of one type")
        lengths = np.zeros((len(self.sources), 2), np.int64)
        code = int.from_bytes(dtype.str.encode().ljust(8)[:8], "little")
        sizes = np.array([[block.size, code] for block in blocks], np.int64).reshape(-1, 2)
        waitall(self._post(list(sizes), list(lengths)))
        if not blocks and len(lengths):
            dtype = np.dtype(int(lengths[0, 1]).to_bytes(8, "little").decode().strip())
        found = [np.empty(int(n), dtype) for n in lengths[:, 0]]
        self.comm._count_exchange([block.nbytes for block in blocks], self.destinations)
        waitall(self._post(list(blocks), list(found)))
        return found

    def __getattr__(self, name: str) -> Callable[..., Plan]:
        if name.endswith("_init") and name[:-5] in _PLANNED:
            return partial(self._plan, name[:-5])
        raise AttributeError(f"a neighbourhood has no attribute {name}")

    def _now(self, call: str, *args: Any) -> Any:
        sends, recvs, answer = self._parts(call, *args)
        self._count(sends)
        if self._native is not None:
            self._native.now(call, *self._filled(args, answer))
        else:
            waitall(self._post(sends, recvs))
        return answer

    def _plan(self, call: str, *args: Any) -> Plan:
        sends, recvs, answer = self._parts(call, *args)
        native = None if self._native is None else self._native.plan(call, *self._filled(args, answer))

        def begin() -> Callable[[], Any]:
            self._count(sends)
            if native is not None:
                end = native()
            else:
                end = partial(waitall, self._post(sends, recvs))
            return lambda: (end(), answer)[1]

        return Plan(begin)

    def _filled(self, args: tuple[Any, ...], answer: Any) -> tuple[Any, ...]:
        """Return the arguments, with the buffer that receives filled in if it was left out."""
        if (len(args) == 2 and args[1] is None) or len(args) == 1:
            return (args[0], answer)
        return args

    def _parts(self, call: str, send: Any, *rest: Any) -> tuple[list[Any], list[Any], Any]:
        """Return one buffer per destination, one per source, and the array that the call returns."""
        ins, outs = len(self.sources), len(self.destinations)
        if call == "neighbor_alltoallw":
            sendlayouts, recv, recvlayouts = rest
            if len(sendlayouts) != outs or len(recvlayouts) != ins:
                raise InputError(f"layouts: found {len(sendlayouts)} and {len(recvlayouts)}; expected {outs} to send and {ins} to receive")
            sends = [None if layout is None else (send, layout) for layout in sendlayouts]
            return sends, [None if layout is None else (recv, layout) for layout in recvlayouts], recv
        mine = flat(send, "send")
        if call in ("neighbor_allgather", "neighbor_allgatherv"):
            recv, counts, starts = (*rest, None, None, None)[:3]
            if recv is None:
                recv = np.zeros_like(mine, shape=(ins, *array_of(send).shape))
            room = self.comm._room(recv, mine)
            return [mine] * outs, cut(room, [mine.size] * ins if counts is None else counts, starts, ins, "recv"), recv
        if call == "neighbor_alltoall":
            recv = rest[0] if rest else None
            if outs and mine.size % outs:
                raise InputError(f"{call}: found {mine.size} elements; expected a multiple of the {outs} destinations")
            count = mine.size // max(outs, 1)
            if recv is None:
                shape = array_of(send).shape
                recv = np.zeros_like(mine, shape=(ins, *shape[1:]) if len(shape) > 1 and shape[0] == outs else ins * count)
            room = self.comm._room(recv, mine)
            if not outs and ins:
                count = room.size // ins
            return cut(mine, [count] * outs, None, outs, "send"), cut(room, [count] * ins, None, ins, "recv"), recv
        sendcounts, recv, recvcounts, sendstarts, recvstarts = (*rest, None, None)[:5]
        room = self.comm._room(recv, mine)
        return cut(mine, sendcounts, sendstarts, outs, "send"), cut(room, recvcounts, recvstarts, ins, "recv"), recv

    def _count(self, sends: Sequence[Any]) -> None:
        sizes = [0 if s is None else s[1].nbytes(s[0].dtype) if type(s) is tuple else s.nbytes for s in sends]
        self.comm._count_exchange(sizes, self.destinations)

    def _post(self, sends: Sequence[Any], recvs: Sequence[Any]) -> list[Request]:
        shadow = self.comm._shadow
        direction = any(self._tags)
        requests = []
        for slot, (buffer, source) in enumerate(zip(recvs, self.sources)):
            if buffer is not None and source != PROC_NULL:
                requests.append(shadow.irecv(buffer, source, slot if direction else 0))
        for tag, buffer, dest in zip(self._tags, sends, self.destinations):
            if buffer is not None and dest != PROC_NULL:
                requests.append(shadow.isend(buffer, dest, tag))
        return requests


class Grid(Neighbourhood):
    """The ranks as a box whose last axis varies fastest. Each axis has two slots: down, then up."""

    def __init__(self, comm: Communicator, dims: Sequence[int], periodic: Sequence[bool] | bool = False) -> None:
        self.dims = tuple(int(n) for n in dims)
        self.periodic = (periodic,) * len(self.dims) if isinstance(periodic, bool) else tuple(bool(p) for p in periodic)
        if not self.dims or min(self.dims) < 1 or math.prod(self.dims) != comm.size:
            raise InputError(f"cart: found dims {list(self.dims)}; expected a product of {comm.size} ranks")
        if len(self.periodic) != len(self.dims):
            raise InputError(f"cart: found {len(self.periodic)} values of periodic; expected one for each of the {len(self.dims)} dims")
        #: The coordinates of this rank.
        self.coords = self.coords_of(comm.rank)
        around = [rank for axis in range(len(self.dims)) for rank in self.shift(axis)]
        super().__init__(comm, around, around, [slot ^ 1 for slot in range(len(around))])

    def coords_of(self, rank: int) -> tuple[int, ...]:
        """Return the coordinates of a rank."""
        return tuple(int(c) for c in np.unravel_index(rank, self.dims))

    def rank_at(self, coords: Sequence[int]) -> int:
        """Return the rank at these coordinates. Periodic axes wrap; outside the other axes there is `PROC_NULL`."""
        place = []
        for at, length, wraps in zip(coords, self.dims, self.periodic):
            if not wraps and not 0 <= at < length:
                return PROC_NULL
            place.append(at % length)
        return int(np.ravel_multi_index(place, self.dims))

    def shift(self, axis: int, steps: int = 1) -> tuple[int, int]:
        """Return the ranks `steps` down and up along an axis, which are the (source, destination) of a shift."""
        if not 0 <= axis < len(self.dims):
            raise InputError(f"axis: found {axis}; expected 0 to {len(self.dims) - 1}")
        down, up = list(self.coords), list(self.coords)
        down[axis] -= steps
        up[axis] += steps
        return self.rank_at(down), self.rank_at(up)


class Graph(Neighbourhood):
    """Neighbours that are named one by one. A rank may be named several times; its messages then arrive in the order of sending."""

    def __init__(self, comm: Communicator, sources: Sequence[int], destinations: Sequence[int], weights: Any = None) -> None:
        if weights is not None and len(weights) != 2:
            raise InputError(f"weights: found {len(weights)} lists; expected two, of the sources and of the destinations")
        #: The weights of the sources and of the destinations, or None.
        self.weights = weights
        super().__init__(comm, sources, destinations, [0] * len(destinations))
