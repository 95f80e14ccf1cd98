"""The communicator over MPI, through mpi4py's buffer calls.

Blocking sends and receives stand in `blocking`. Operations and types that MPI lacks, reductions in rank order and algorithms chosen by
name run over messages, on a duplicate of the communicator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from mpi4py import MPI

from armillary.comm.collectives.operations import SUM, Op
from armillary.comm.communicator import Communicator
from armillary.comm.counters import Tally
from armillary.comm.messages.buffers import Array, Buffer, Parts, described, flat, incoming, outgoing
from armillary.comm.messages.envelope import ANY_SOURCE, ANY_TAG, PROC_NULL, Status, check_rank, check_tag
from armillary.comm.messages.requests import Done, Request
from armillary.comm.mpi.blocking import MessagePlan, receiver, sender
from armillary.comm.mpi.datatypes import OPS, by_layout, datatype, parts, reduces, spec
from armillary.comm.mpi.requests import MpiRequest, MpiStatus, explain, starter
from armillary.comm.plans import Plan
from armillary.comm.windows import Window
from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.comm.topology.neighbours import Neighbourhood

#: The library's numbers of the special ranks, about which MPI libraries disagree.
_SOURCE = {ANY_SOURCE: MPI.ANY_SOURCE, PROC_NULL: MPI.PROC_NULL}


class MpiRanks(Communicator):
    """The ranks of an MPI communicator."""

    _transfers: ClassVar[str] = "armillary.comm.mpi.transfers:MpiTransfers"
    _own_process: ClassVar[bool] = True

    def __init__(self, native: Any, nodes: Sequence[int], tally: Tally, seed: int) -> None:
        super().__init__(native.Get_rank(), nodes, tally, seed)
        #: The mpi4py communicator.
        self.native = native
        #: By (dims, periodic): whether the library exchanges correctly on boxes with short periodic axes. Duplicates share it.
        self._right_boxes: dict[Any, bool] = {}
        self.__dict__.update(send=sender(self, native), recv=receiver(self, native))

    # Messages

    def isend(self, buf: Buffer, dest: int, tag: int = 0) -> Request:
        check_tag(tag)
        check_rank(dest, self.size, "dest")
        memory, nbytes = self._outgoing(buf)
        self._count_message(dest, nbytes)
        if dest == PROC_NULL:
            return Done()
        return MpiRequest(self.native.Isend(memory, dest, tag), memory, nbytes)

    def irecv(self, buf: Buffer, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        check_tag(tag, wild=True)
        check_rank(source, self.size, "source", wild=True)
        memory, nbytes = self._incoming(buf)
        self._tally.now.calls += 1
        if source == PROC_NULL:
            return Done()
        request = self.native.Irecv(memory, _SOURCE.get(source, source), MPI.ANY_TAG if tag == ANY_TAG else tag)
        return MpiRequest(request, memory, nbytes)

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status:
        check_tag(tag, wild=True)
        check_rank(source, self.size, "source", wild=True)
        status: Any = MpiStatus()
        self.native.Probe(_SOURCE.get(source, source), MPI.ANY_TAG if tag == ANY_TAG else tag, status)
        return status

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status | None:
        check_tag(tag, wild=True)
        check_rank(source, self.size, "source", wild=True)
        status: Any = MpiStatus()
        found = self.native.Iprobe(_SOURCE.get(source, source), MPI.ANY_TAG if tag == ANY_TAG else tag, status)
        return status if found else None

    def _outgoing(self, buf: Buffer) -> tuple[Any, int]:
        if type(buf) is tuple:
            array, layout = described(buf)
            return [array, 1, datatype(layout, array.dtype.str)], layout.nbytes(array.dtype)
        data = outgoing(buf)
        return [data, data.nbytes, MPI.BYTE], data.nbytes

    def _incoming(self, buf: Buffer) -> tuple[Any, int]:
        if type(buf) is tuple:
            array, layout = described(buf)
            return [array, 1, datatype(layout, array.dtype.str)], layout.nbytes(array.dtype)
        data, _ = incoming(buf)
        return [data, data.nbytes, MPI.BYTE], data.nbytes

    def _refused(self, error: Exception, buf: Buffer, rank: int, tag: int, status: Any = None) -> None:
        """Say what was wrong with a call that the library refused. A type that mpi4py does not know is sent as bytes instead."""
        check_tag(tag)
        check_rank(rank, self.size, "rank")
        if isinstance(error, MPI.Exception):
            explain(error, status, buf.nbytes)
        data = flat(buf, "buffer", writable=status is not None).view(np.uint8)
        if status is None:
            self.native.Send([data, MPI.BYTE], rank, tag)
        else:
            self.native.Recv([data, MPI.BYTE], rank, tag, status)

    # Collective calls

    def _run(self, collective: str, nbytes: int, *args: Any) -> None:
        if collective in self._chosen:
            self._chosen[collective](self._shadow, *args)
        else:
            try:
                getattr(self, f"_native_{collective}")(*args)
            except MPI.Exception as error:
                explain(error, None, nbytes)

    def _reduction(self, collective: str, op: Op, *args: Any) -> None:
        sample = args[0][0] if isinstance(args[0], list) else args[0]
        if collective not in self._chosen and reduces(sample, op):
            self._run(collective, sample.nbytes, *args)
        else:
            super()._run(collective, sample.nbytes, *args)

    def _native_barrier(self) -> None:
        self.native.Barrier()

    def _native_bcast(self, whole: Array, root: int) -> None:
        self.native.Bcast(spec(whole), root)

    def _native_reduce(self, mine: Array, answer: Array | None, op: Op, root: int) -> None:
        self.native.Reduce(MPI.IN_PLACE if mine is answer else spec(mine), None if answer is None else spec(answer), OPS[op.name], root)

    def _native_allreduce(self, mine: Array, answer: Array, op: Op) -> None:
        self.native.Allreduce(MPI.IN_PLACE if mine is answer else spec(mine), spec(answer), OPS[op.name])

    def _native_scan(self, mine: Array, answer: Array, op: Op) -> None:
        self.native.Scan(MPI.IN_PLACE if mine is answer else spec(mine), spec(answer), OPS[op.name])

    def _native_exscan(self, mine: Array, answer: Array, op: Op) -> None:
        # The standard leaves the buffer of rank 0 undefined, and some libraries write into it.
        kept = answer.copy() if self.rank == 0 else None
        self.native.Exscan(MPI.IN_PLACE if mine is answer else spec(mine), spec(answer), OPS[op.name])
        if kept is not None:
            answer[...] = kept

    def _native_gather(self, mine: Array, blocks: Parts | None, root: int) -> None:
        self.native.Gatherv(spec(mine), None if blocks is None else parts(blocks), root)

    def _native_scatter(self, blocks: Parts | None, room: Array, root: int) -> None:
        self.native.Scatterv(None if blocks is None else parts(blocks), spec(room), root)

    def _native_allgather(self, mine: Array, blocks: Parts) -> None:
        if np.may_share_memory(mine, blocks[self.rank]):
            mine = mine.copy()
        self.native.Allgatherv(spec(mine), parts(blocks))

    def _native_alltoall(self, sends: Parts, recvs: Parts) -> None:
        self.native.Alltoallv(parts(sends), parts(recvs))

    _native_alltoallv = _native_alltoall

    def _native_reduce_scatter(self, sends: Parts, answer: Array, op: Op) -> None:
        self.native.Reduce_scatter(spec(sends.whole), spec(answer), sends.counts, OPS[op.name])

    def alltoallw(self, send: Array, sendlayouts: Sequence[Any], recv: Array, recvlayouts: Sequence[Any]) -> Array:
        self._count_exchange(self._check_layouts(send, sendlayouts, recv, recvlayouts))
        self.native.Alltoallw(by_layout(send, sendlayouts), by_layout(recv, recvlayouts))
        return recv

    # Plans

    def _plan(self, call: str, *args: Any, **named: Any) -> Plan:
        native_names = {"barrier": "Barrier", "bcast": "Bcast", "allreduce": "Allreduce"}
        if call in ("send", "recv"):
            return self._message_plan(call == "send", *args, **named)
        if call not in native_names or call in self._chosen or named:
            return super()._plan(call, *args, **named)
        return self._collective_plan(call, native_names[call], args) or super()._plan(call, *args, **named)

    def _message_plan(self, sends: bool, buf: Buffer, rank: int = ANY_SOURCE, tag: int | None = None) -> Plan:
        tag = (0 if sends else ANY_TAG) if tag is None else tag
        check_tag(tag, wild=not sends)
        check_rank(rank, self.size, "rank", wild=not sends)
        memory, nbytes = self._outgoing(buf) if sends else self._incoming(buf)
        make = self.native.Send_init if sends else self.native.Recv_init
        request = make(memory, _SOURCE.get(rank, rank), MPI.ANY_TAG if tag == ANY_TAG else tag)
        return MessagePlan(self, request, memory, nbytes, rank if sends else None)

    def _collective_plan(self, call: str, native: str, args: tuple[Any, ...]) -> Plan | None:
        """Return the plan of a native collective call, or None if MPI lacks the operation or the type."""
        answer: Any = None
        nbytes = 0
        if call == "bcast":
            answer, root = (*args, 0)[:2]
            whole = flat(answer, "bcast")
            nbytes = whole.nbytes if self.rank == root else 0
            given: tuple[Any, ...] = (spec(whole), root)
        elif call == "allreduce":
            op = args[2] if len(args) > 2 else SUM
            mine, room, answer = self._two(args[0], args[1] if len(args) > 1 else None)
            if len(args) > 3 or not reduces(mine, op):
                return None
            nbytes = mine.nbytes
            given = (MPI.IN_PLACE if mine is room else spec(mine), spec(room), OPS[op.name])
        else:
            given = ()
        start = starter(self.native, native, given)

        def begin() -> Callable[[], Any]:
            self._count(nbytes)
            end = start()
            return lambda: (end(), answer)[1]

        return Plan(begin)

    # Groups

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        if color is not None and color < 0:
            return super().split(color, key)
        native = self.native.Split(MPI.UNDEFINED if color is None else color, key)
        return None if color is None else self._child(native)

    def dup(self) -> Communicator:
        child = self._child(self.native.Dup())
        child._right_boxes = self._right_boxes
        return child

    def _child(self, native: Any) -> MpiRanks:
        here, there = self.native.Get_group(), native.Get_group()
        members = there.Translate_ranks(list(range(there.Get_size())), here)
        child = MpiRanks(native, [self.nodes[i] for i in members], self._tally, self._seed)
        self._inherit(child)
        return child

    def _make_shadow(self) -> MpiRanks:
        return MpiRanks(self.native.Dup(), self.nodes, Tally(), self._seed)

    def window(self, nbytes: int, dtype: Any = np.uint8) -> Window:
        from armillary.comm.mpi.window import MpiWindow

        return MpiWindow(self, nbytes, dtype)

    def _neighbours(self, around: Neighbourhood) -> Any:
        from armillary.comm.mpi.neighbours import native_neighbours

        return native_neighbours(self, around)


def ranks_of(native: Any, seed: int = 0) -> MpiRanks:
    """Return the ranks of a communicator of mpi4py, in its order."""
    if not isinstance(native, MPI.Intracomm) or native == MPI.COMM_NULL:
        raise InputError(
            "adopt: found an MPI communicator without ranks of its own; expected an intracommunicator to which this rank belongs"
        )
    hosts = np.zeros((native.Get_size(), 64), np.uint8)
    name = np.frombuffer(MPI.Get_processor_name().encode()[:64].ljust(64), np.uint8)
    native.Allgather(name.copy(), hosts)
    order: dict[bytes, int] = {}
    nodes = [order.setdefault(host.tobytes(), len(order)) for host in hosts]
    return MpiRanks(native, nodes, Tally(), seed)
