"""Packed exchanges: blocks are copied into contiguous buffers, sent, and copied out on the other side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .geometry import Transfer
from .packing import packer as find_packer
from .types import element

if TYPE_CHECKING:
    from .halo import Halo

Array = np.ndarray[Any, Any]


class Packed:
    """What a packed plan keeps for one array."""

    def __init__(self, halo: Halo, a: Array, call: str, packer: str) -> None:
        copy = find_packer(packer)
        kind = {"p2p": _Messages, "p2p-persistent": _Persistent, "partitioned": _Partitioned}.get(call, _Neighbourhood)
        self._phases = [kind(halo, a, phase, copy, call) for phase in halo.phases]
        if len(self._phases) == 1:
            self.run = self._phases[0].run
        else:
            self.run = self._all

    def _all(self) -> None:
        for phase in self._phases:
            phase.run()

    def free(self) -> None:
        """Give back the requests."""
        for phase in self._phases:
            phase.free()


class _Phase:
    """Views and buffers of the transfers that exist; a neighbour beyond an end has none, so its halo is not touched."""

    def __init__(self, halo: Halo, a: Array, phase: tuple[Transfer, ...], copy: Any, call: str) -> None:
        self.copy = copy
        self.transfers = [(t, halo.neighbour(t.offset)) for t in phase]
        alive = [(t, rank) for t, rank in self.transfers if rank >= 0]
        self.outs = [(np.empty(a[t.send].shape, a.dtype), a[t.send], rank, t.sent_tag) for t, rank in alive]
        self.ins = [(np.empty(a[t.receive].shape, a.dtype), a[t.receive], rank, t.received_tag) for t, rank in alive]
        #: (buffer, view) to pack and (view, buffer) to unpack.
        self.packs = [(buffer, view) for buffer, view, _, _ in self.outs]
        self.unpacks = [(view, buffer) for buffer, view, _, _ in self.ins]
        self.requests: list[Any] = []
        self.prepare(halo, a, call)

    def prepare(self, halo: Halo, a: Array, call: str) -> None:
        """Prepare the call."""

    def run(self) -> None:
        """Exchange."""
        raise NotImplementedError

    def free(self) -> None:
        """Give back the requests."""
        for request in self.requests:
            request.Free()


class _Messages(_Phase):
    def prepare(self, halo: Halo, a: Array, call: str) -> None:
        from mpi4py import MPI

        one = element(a.dtype)
        self._irecv, self._isend, self._waitall = halo.comm.Irecv, halo.comm.Isend, MPI.Request.Waitall
        self._receives = [([buffer, buffer.size, one], rank, tag) for buffer, _, rank, tag in self.ins]
        self._sends = [(buffer, view, [buffer, buffer.size, one], rank, tag) for buffer, view, rank, tag in self.outs]

    def run(self) -> None:
        irecv, isend, copy = self._irecv, self._isend, self.copy
        requests = [irecv(spec, rank, tag) for spec, rank, tag in self._receives]
        for buffer, view, spec, rank, tag in self._sends:
            copy(buffer, view)
            requests.append(isend(spec, rank, tag))
        self._waitall(requests)
        for view, buffer in self.unpacks:
            copy(view, buffer)


class _Persistent(_Phase):
    def prepare(self, halo: Halo, a: Array, call: str) -> None:
        from mpi4py import MPI

        one = element(a.dtype)
        self.requests = [halo.comm.Recv_init([buffer, buffer.size, one], rank, tag) for buffer, _, rank, tag in self.ins]
        self.requests += [halo.comm.Send_init([buffer, buffer.size, one], rank, tag) for buffer, _, rank, tag in self.outs]
        self._startall, self._waitall = MPI.Prequest.Startall, MPI.Request.Waitall

    def run(self) -> None:
        copy = self.copy
        for buffer, view in self.packs:
            copy(buffer, view)
        self._startall(self.requests)
        self._waitall(self.requests)
        for view, buffer in self.unpacks:
            copy(view, buffer)


class _Partitioned(_Phase):
    """Each side is one partition, which is ready as soon as it is packed.

    The requests are started one by one, because `Startall` of several partitioned requests never ends in Open MPI 5.0.11.
    """

    def prepare(self, halo: Halo, a: Array, call: str) -> None:
        from mpi4py import MPI

        one = element(a.dtype)
        self.requests = [halo.comm.Precv_init([buffer, buffer.size, one], 1, rank, tag) for buffer, _, rank, tag in self.ins]
        sends = [halo.comm.Psend_init([buffer, buffer.size, one], 1, rank, tag) for buffer, _, rank, tag in self.outs]
        self._sends = [(request.Pready, buffer, view) for request, (buffer, view, _, _) in zip(sends, self.outs)]
        self.requests += sends
        self._starts = [request.Start for request in self.requests]
        self._waitall = MPI.Request.Waitall

    def run(self) -> None:
        copy = self.copy
        for start in self._starts:
            start()
        for ready, buffer, view in self._sends:
            copy(buffer, view)
            ready(0)
        self._waitall(self.requests)
        for view, buffer in self.unpacks:
            copy(view, buffer)


class _Neighbourhood(_Phase):
    """One call for all sides of a box; blocks lie one after another in one buffer per direction."""

    def prepare(self, halo: Halo, a: Array, call: str) -> None:
        one = element(a.dtype)
        slots = 2 * len(halo.shape)
        counts, starts = [0] * slots, [0] * slots
        at = 0
        for t, rank in self.transfers:
            slot = 2 * t.axis + (t.offset[t.axis] > 0)
            starts[slot] = at
            if rank >= 0:
                counts[slot] = int(np.prod(a[t.send].shape))
                at += counts[slot]
        out, into = np.empty(at, a.dtype), np.empty(at, a.dtype)
        self.packs, self.unpacks = [], []
        for t, rank in self.transfers:
            if rank >= 0:
                slot = 2 * t.axis + (t.offset[t.axis] > 0)
                part = slice(starts[slot], starts[slot] + counts[slot])
                self.packs.append((out[part].reshape(a[t.send].shape), a[t.send]))
                self.unpacks.append((a[t.receive], into[part].reshape(a[t.receive].shape)))
        given = ([out, counts, starts, one], [into, counts, starts, one])
        self._start, self._wait = None, None
        if call.endswith("persistent"):
            request = halo.comm.Neighbor_alltoallv_init(*given)
            self.requests = [request]
            self._start, self._wait = request.Start, request.Wait
        else:
            self._call, self._given = halo.comm.Neighbor_alltoallv, given

    def run(self) -> None:
        copy = self.copy
        for buffer, view in self.packs:
            copy(buffer, view)
        if self._start is None or self._wait is None:
            self._call(*self._given)
        else:
            self._start()
            self._wait()
        for view, buffer in self.unpacks:
            copy(view, buffer)
