"""Exchanges by datatypes: the array itself is the buffer, and the library finds the elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .geometry import Transfer
from .types import block_type, memory_of

if TYPE_CHECKING:
    from .halo import Halo

Array = np.ndarray[Any, Any]


class InPlace:
    """What a datatype plan keeps for one array."""

    def __init__(self, halo: Halo, a: Array, call: str, describe: str) -> None:
        #: The datatypes of what is sent and received, by offset.
        self.types = {t.offset: (block_type(a, t.send, describe), block_type(a, t.receive, describe)) for p in halo.phases for t in p}
        memory = memory_of(a)
        if call.startswith("neighbourhood"):
            self._phases: list[Any] = [_Neighbourhood(halo, memory, phase, self.types, call) for phase in halo.phases]
        else:
            kind = _Persistent if call.endswith("persistent") else _Messages
            self._phases = [kind(halo, memory, phase, self.types) for phase in halo.phases]
        self.run = self._phases[0].run if len(self._phases) == 1 else self._all

    def _all(self) -> None:
        for phase in self._phases:
            phase.run()

    def free(self) -> None:
        """Give back requests and datatypes."""
        for phase in self._phases:
            for request in phase.requests:
                request.Free()
        for pair in self.types.values():
            for one in pair:
                one.Free()


class _Messages:
    def __init__(self, halo: Halo, memory: Any, phase: tuple[Transfer, ...], types: Any) -> None:
        from mpi4py import MPI

        alive = [(t, rank) for t in phase if (rank := halo.neighbour(t.offset)) >= 0]
        self.requests: list[Any] = []
        self._irecv, self._isend, self._waitall = halo.comm.Irecv, halo.comm.Isend, MPI.Request.Waitall
        self._receives = [([memory, 1, types[t.offset][1]], rank, t.received_tag) for t, rank in alive]
        self._sends = [([memory, 1, types[t.offset][0]], rank, t.sent_tag) for t, rank in alive]

    def run(self) -> None:
        irecv, isend = self._irecv, self._isend
        requests = [irecv(spec, rank, tag) for spec, rank, tag in self._receives]
        for spec, rank, tag in self._sends:
            requests.append(isend(spec, rank, tag))
        self._waitall(requests)


class _Persistent:
    def __init__(self, halo: Halo, memory: Any, phase: tuple[Transfer, ...], types: Any) -> None:
        from mpi4py import MPI

        alive = [(t, rank) for t in phase if (rank := halo.neighbour(t.offset)) >= 0]
        self.requests = [halo.comm.Recv_init([memory, 1, types[t.offset][1]], rank, t.received_tag) for t, rank in alive]
        self.requests += [halo.comm.Send_init([memory, 1, types[t.offset][0]], rank, t.sent_tag) for t, rank in alive]
        self._startall, self._waitall = MPI.Prequest.Startall, MPI.Request.Waitall

    def run(self) -> None:
        self._startall(self.requests)
        self._waitall(self.requests)


class _Neighbourhood:
    """One `Neighbor_alltoallw` with counts of 1 and displacements of 0, because the datatypes contain their places."""

    def __init__(self, halo: Halo, memory: Any, phase: tuple[Transfer, ...], types: Any, call: str) -> None:
        from mpi4py import MPI

        slots = 2 * len(halo.shape)
        counts, out, into = [0] * slots, [MPI.BYTE] * slots, [MPI.BYTE] * slots
        for t in phase:
            slot = 2 * t.axis + (t.offset[t.axis] > 0)
            if halo.neighbour(t.offset) >= 0:
                counts[slot] = 1
                out[slot], into[slot] = types[t.offset]
        given = ([memory, counts, [0] * slots, out], [memory, counts, [0] * slots, into])
        self.requests: list[Any] = []
        if call.endswith("persistent"):
            request = halo.comm.Neighbor_alltoallw_init(*given)
            self.requests = [request]
            self._start, self._wait = request.Start, request.Wait
            self.run = self._persistent
        else:
            self._call, self._given = halo.comm.Neighbor_alltoallw, given
            self.run = self._now

    def _now(self) -> None:
        self._call(*self._given)

    def _persistent(self) -> None:
        self._start()
        self._wait()
