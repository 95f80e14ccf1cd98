"""The coordinator's transfers on MPI: persistent requests in a batch, blocking calls outside one.

A persistent request knows its buffer, so starting it is the one native call of a post, and it is cheaper than a new `Isend`. Signals are
not sent, because matching orders posts and acknowledgements; the receiver raises its own signal when the message has arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mpi4py import MPI

from armillary.comm.collectives.operations import Op
from armillary.comm.communicator import Communicator
from armillary.comm.coordination.prepared import Call, Message, PreparedTransfers
from armillary.comm.coordination.transfers import first
from armillary.comm.failures import CommError
from armillary.comm.messages.buffers import Buffer, cut, flat
from armillary.comm.messages.envelope import PROC_NULL, InPlace
from armillary.comm.mpi.datatypes import OPS, element_type, reduces, unowned_spec
from armillary.comm.mpi.requests import explain

#: The native calls that are not methods of the communicator, under names of this module so that a test can count them.
_start = MPI.Prequest.Start
_waitall = MPI.Request.Waitall


class _Persistent(Message):
    """A message with a persistent request, which is made at the first use in a batch."""

    __slots__ = ()

    def __init__(self, nbytes: int, now: Callable[[], Any], again: Callable[[], Any], make: Callable[[], Any]) -> None:
        def first_start() -> None:
            self.request = make()
            self.start = partial(_start, self.request)
            self.start()

        super().__init__(nbytes, now, first_start, again)

    def free(self) -> None:
        if self.request is not None and not MPI.Is_finalized():
            self.request.Free()
            self.request = None


class MpiTransfers(PreparedTransfers):
    """Transfers of MPI ranks, on a duplicate of the communicator that all its coordinators share."""

    def __init__(self, comm: Communicator, stream: Any = None) -> None:
        super().__init__(comm, stream)
        self._native: Any = comm.__dict__.get("_coordinated")
        if self._native is None:
            self._native = comm.__dict__["_coordinated"] = comm.native.Dup()
        self._bind_messages(self._message, _waitall, (MPI.Exception, _failure), forgets=True)
        self._bind_collectives(self._reduction, self._gathering, self._broadcasting)

    def _message(self, buffer: Buffer, count: int, what: str, rank: int) -> Message:
        data = first(buffer, count, what)
        nbytes = data.nbytes
        peer = MPI.PROC_NULL if rank == PROC_NULL else rank
        spec = [MPI.buffer.fromaddress(data.ctypes.data, nbytes), nbytes, MPI.BYTE]
        native = self._native
        if what == "src":
            send = partial(native.Send, spec, peer)
            return _Persistent(nbytes, send, partial(native.Isend, spec, peer), partial(native.Send_init, spec, peer))
        recv = native.Recv

        def now() -> None:
            try:
                recv(spec, peer)
            except MPI.Exception as error:
                explain(error, None, nbytes)

        return _Persistent(nbytes, now, partial(native.Irecv, spec, peer), partial(native.Recv_init, spec, peer))

    # Where one rank makes a prepared call and another the communicator's own, both must meet, so both use one native communicator.

    def _reduction(self, send: Any, recv: Any, op: Op) -> Call | None:
        if recv is None:
            return None
        mine, answer, _ = self.comm._two(send, recv)
        if not reduces(mine, op):
            return None
        spec = MPI.IN_PLACE if mine is answer else unowned_spec(mine)
        return Call(mine.nbytes, partial(self.comm.native.Allreduce, spec, unowned_spec(answer), OPS[op.name]))

    def _gathering(self, send: Any, recv: Any, counts: Any, displacements: Any) -> Call | None:
        if recv is None:
            return None
        comm = self.comm
        blocks = cut(flat(recv, "recv", writable=True), counts, displacements, comm.size, "allgather")
        own = blocks[comm.rank]
        in_place = isinstance(send, InPlace)
        mine = own if in_place else flat(send, "send")
        if not in_place:
            comm._same(own, mine, "allgather")
            if mine.nbytes and abs(mine.ctypes.data - own.ctypes.data) < mine.nbytes:
                if mine.ctypes.data != own.ctypes.data:
                    return None
                in_place = True
        whole = blocks.whole
        room = [MPI.buffer.fromaddress(whole.ctypes.data, whole.nbytes), blocks.counts, blocks.starts, element_type(whole.dtype)]
        return Call(mine.nbytes, partial(comm.native.Allgatherv, MPI.IN_PLACE if in_place else unowned_spec(mine), room))

    def _broadcasting(self, buf: Buffer, root: int) -> Call | None:
        if type(buf) is tuple:
            return None
        self.comm._root(root)
        whole = flat(buf, "bcast", writable=self.comm.rank != root)
        return Call(whole.nbytes, partial(self.comm.native.Bcast, unowned_spec(whole), root))


def _failure(error: MPI.Exception) -> CommError:
    return CommError(f"MPI: {error.Get_error_string()}")
