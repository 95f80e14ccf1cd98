"""A coordinator's transfers on MPI: persistent requests in a batch, blocking calls outside one, prepared at the first use of a buffer.

A persistent request knows its buffer, so starting it is the one native call of a post, and cheaper than a fresh `Isend`. Signals are not
sent: matching orders posts and acknowledgements, and the receiver raises its own when the message is there.
"""

from __future__ import annotations

import weakref
from typing import Any

from mpi4py import MPI

from armillary.comm.buffers import Array, Buffer, cut, flat
from armillary.comm.communicator import Communicator
from armillary.comm.failures import CommError
from armillary.comm.message import PROC_NULL, check_rank
from armillary.comm.mpi import _OPS, _element, _explain, _native_type
from armillary.comm.operations import SUM, Op
from armillary.comm.signals import check_signal
from armillary.comm.transfers import Remembered, Transfers, first

#: The native calls that are not methods of the communicator, under names of this module so that a test can count them.
_start = MPI.Prequest.Start
_waitall = MPI.Request.Waitall


class _Prepared:
    """A message of one buffer to or from one rank."""

    __slots__ = ("messages", "nbytes", "rank", "request", "spec", "turn")

    def __init__(self, spec: list[Any], rank: int, messages: int, nbytes: int) -> None:
        self.spec = spec
        self.rank = MPI.PROC_NULL if rank == PROC_NULL else rank
        #: What it adds to the counters.
        self.messages = messages
        self.nbytes = nbytes
        #: The persistent request, from its first use in a batch on, and the number of the batch that last started it.
        self.request: Any = None
        self.turn = -1

    def free(self) -> None:
        """Give the request back to the library."""
        if self.request is not None and not MPI.Is_finalized():
            self.request.Free()
            self.request = None


class MpiTransfers(Transfers):
    """Transfers of MPI ranks, on a duplicate of the communicator that all its coordinators share."""

    def __init__(self, comm: Communicator, stream: Any = None) -> None:
        super().__init__(comm, stream)
        ranks: Any = comm
        own: Any = comm.__dict__.get("_coordinated")
        if own is None:
            own = comm.__dict__["_coordinated"] = ranks.native.Dup()
        self._bind_messages(own)
        # Where one rank takes the prepared way and another the communicator's, both must meet: one native communicator for both.
        self._bind_collectives(ranks.native)

    def _bind_messages(self, native: Any) -> None:
        comm, tally, start, waitall = self.comm, self.comm._tally, _start, _waitall
        send, recv, isend, irecv = native.Send, native.Recv, native.Isend, native.Irecv
        send_init, recv_init = native.Send_init, native.Recv_init
        sends, recvs = Remembered(_Prepared.free), Remembered(_Prepared.free)
        weakref.finalize(self, _free, sends, recvs)
        #: What the open batch has started, on which buffers, and which signals it raises to which values.
        open_ones: list[Any] = []
        buffers: list[Any] = []
        signals: list[Any] = []
        values: list[int] = []
        inside, turn = False, 0

        def post(src: Buffer, dst: Buffer, count: int, signal: Array | None, value: int, dest: int) -> None:
            one = sends.get((id(src), count, dest)) or _prepare(comm, sends, src, "src", signal, count, dest)
            counters = tally.now
            counters.calls += 1
            counters.messages += one.messages
            counters.bytes += one.nbytes
            if not inside:
                send(one.spec, one.rank)
                return
            if one.turn == turn:
                # Its own request is under way in this batch already.
                open_ones.append(isend(one.spec, one.rank))
            else:
                request = one.request
                if request is None:
                    request = one.request = send_init(one.spec, one.rank)
                one.turn = turn
                start(request)
                open_ones.append(request)
                buffers.append(src)

        def acknowledge(dst: Buffer, count: int, signal: Array | None, value: int, source: int) -> None:
            one = recvs.get((id(dst), count, source)) or _prepare(comm, recvs, dst, "dst", signal, count, source)
            tally.now.calls += 1
            if not inside:
                try:
                    recv(one.spec, one.rank)
                except MPI.Exception as error:
                    _explain(error, None, one.spec[1])
                if signal is not None:
                    signal[0] = value
                return
            if one.turn == turn:
                # Its own request is under way in this batch already.
                open_ones.append(irecv(one.spec, one.rank))
            else:
                request = one.request
                if request is None:
                    request = one.request = recv_init(one.spec, one.rank)
                one.turn = turn
                start(request)
                open_ones.append(request)
                buffers.append(dst)
            if signal is not None:
                if signals and signals[-1] is signal:
                    values[-1] = value
                else:
                    signals.append(signal)
                    values.append(value)

        def begin() -> None:
            nonlocal inside
            inside = True

        def end() -> None:
            nonlocal inside
            inside = False
            wait()

        def wait() -> None:
            nonlocal turn
            if not open_ones:
                return
            turn += 1
            try:
                waitall(open_ones)
            except MPI.Exception as error:
                raise CommError(f"MPI: {error.Get_error_string()}") from error
            finally:
                open_ones.clear()
                buffers.clear()
            for i in range(len(signals)):
                signals[i][0] = values[i]
            signals.clear()
            values.clear()

        def drop() -> None:
            nonlocal inside
            inside = False
            for given_up in (open_ones, buffers, signals, values, sends, recvs):
                given_up.clear()

        self.__dict__.update(post=post, acknowledge=acknowledge, begin=begin, end=end, wait=wait, drop=drop)

    def _bind_collectives(self, native: Any) -> None:
        comm, tally, wait = self.comm, self.comm._tally, self.wait
        native_allreduce, native_allgatherv, native_bcast = native.Allreduce, native.Allgatherv, native.Bcast
        general_allreduce, general_allgatherv, general_broadcast = super().allreduce, super().allgatherv, super().broadcast
        reductions, gathers, broadcasts = Remembered(), Remembered(), Remembered()
        alone = comm.size == 1

        def allreduce(send: Any, recv: Any = None, op: Op = SUM, order: str | None = None) -> Any:
            known = reductions.get((id(send), id(recv), op.name)) if order is None else None
            if known is None:
                known = _reduction(comm, reductions, send, recv, op) if order is None and recv is not None else None
                if known is None:
                    return general_allreduce(send, recv, op, order)
            wait()
            counters = tally.now
            counters.calls += 1
            counters.collectives += 1
            counters.bytes += known[3]
            native_allreduce(known[0], known[1], known[2])
            return recv

        def allgatherv(send: Any, recv: Any = None, counts: Any = None, displacements: Any = None) -> Any:
            known = gathers.get((id(send), id(recv)))
            if known is None or counts is not known[0] or displacements is not known[1]:
                known = _gathering(comm, gathers, send, recv, counts, displacements)
                if known is None:
                    return general_allgatherv(send, recv, counts, displacements)
            wait()
            counters = tally.now
            counters.calls += 1
            counters.collectives += 1
            counters.bytes += known[4]
            native_allgatherv(known[2], known[3])
            return recv

        def broadcast(buf: Buffer, root: int = 0) -> Buffer:
            known = broadcasts.get((id(buf), root))
            if known is None:
                if type(buf) is tuple or "bcast" in comm._chosen:
                    return general_broadcast(buf, root)
                comm._root(root)
                whole = flat(buf, "bcast", writable=comm.rank != root)
                nbytes = whole.nbytes if comm.rank == root and not alone else 0
                known = broadcasts.keep((id(buf), root), (buf,), (_spec(whole), nbytes))
            wait()
            counters = tally.now
            counters.calls += 1
            counters.collectives += 1
            counters.bytes += known[1]
            native_bcast(known[0], root)
            return buf

        self.__dict__.update(allreduce=allreduce, allgatherv=allgatherv, broadcast=broadcast)


def _spec(array: Array) -> list[Any]:
    """The memory of an array as mpi4py takes it, without keeping the array alive."""
    return [MPI.buffer.fromaddress(array.ctypes.data, array.nbytes), array.size, _element(array.dtype)]


def _prepare(comm: Communicator, table: Remembered, buffer: Buffer, what: str, signal: Any, count: int, rank: int) -> _Prepared:
    check_signal(signal)
    check_rank(rank, comm.size, "dest" if what == "src" else "source")
    data = first(buffer, count, what)
    other = rank not in (comm.rank, PROC_NULL)
    memory = [MPI.buffer.fromaddress(data.ctypes.data, data.nbytes), data.nbytes, MPI.BYTE]
    one = _Prepared(memory, rank, int(other and what == "src"), data.nbytes if other and what == "src" else 0)
    table.keep((id(buffer), count, rank), (buffer,), one)
    return one


def _reduction(comm: Communicator, table: Remembered, send: Any, recv: Any, op: Op) -> tuple[Any, ...] | None:
    mine, answer, _ = comm._two(send, recv)
    if "allreduce" in comm._chosen or not _native_type(mine, op):
        return None
    spec = MPI.IN_PLACE if mine is answer else _spec(mine)
    entry = (spec, _spec(answer), _OPS[op.name], mine.nbytes if comm.size > 1 else 0)
    table.keep((id(send), id(recv), op.name), (send, recv), entry)
    return entry


def _gathering(comm: Communicator, table: Remembered, send: Any, recv: Any, counts: Any, displacements: Any) -> tuple[Any, ...] | None:
    if recv is None or type(counts) is not tuple or type(displacements) not in (tuple, type(None)) or "allgather" in comm._chosen:
        return None
    blocks = cut(flat(recv, "recv", writable=True), counts, displacements, comm.size, "allgather")
    own = blocks[comm.rank]
    in_place = not hasattr(send, "dtype")
    mine = own if in_place else flat(send, "send")
    if not in_place:
        comm._same(own, mine, "allgather")
        if mine.nbytes and abs(mine.ctypes.data - own.ctypes.data) < mine.nbytes:
            if mine.ctypes.data != own.ctypes.data:
                return None
            in_place = True
    whole = blocks.whole
    room = [MPI.buffer.fromaddress(whole.ctypes.data, whole.nbytes), blocks.counts, blocks.starts, _element(whole.dtype)]
    entry = (counts, displacements, MPI.IN_PLACE if in_place else _spec(mine), room, mine.nbytes if comm.size > 1 else 0)
    table.keep((id(send), id(recv)), (send, recv), entry)
    return entry


def _free(*tables: Remembered) -> None:
    for table in tables:
        for one in list(table.values()):
            one.free()
        table.clear()
