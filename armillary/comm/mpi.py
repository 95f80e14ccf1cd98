"""Ranks as processes of an MPI job, through mpi4py's buffer calls.

A call here is one Python call around the native one: what a good call does not need, such as checks of the arguments, is done when the
library has refused it. Operations and types that MPI lacks, reductions in rank order and algorithms chosen by name run over messages, on
a duplicate of the communicator.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from mpi4py import MPI

from armillary.comm.buffers import Array, Buffer, Parts, described, flat, incoming, outgoing
from armillary.comm.communicator import Communicator
from armillary.comm.counters import Tally
from armillary.comm.failures import CommError, Truncated
from armillary.comm.layout import Layout
from armillary.comm.message import ANY_SOURCE, ANY_TAG, PROC_NULL, Status, check_rank, check_tag
from armillary.comm.operations import SUM, Op
from armillary.comm.plans import Plan
from armillary.comm.requests import Done, Request
from armillary.comm.windows import Window
from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.comm.neighbours import Neighbourhood

#: MPI libraries disagree about these numbers.
_SOURCE = {ANY_SOURCE: MPI.ANY_SOURCE, PROC_NULL: MPI.PROC_NULL}
_OPS = {name: getattr(MPI, name.upper()) for name in ["sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor"]}


class MpiStatus(MPI.Status):
    """The library's own status, with the names of `Status`."""

    __slots__ = ()

    @property
    def nbytes(self) -> int:
        """Bytes received."""
        return int(self.Get_count(MPI.BYTE))


class MpiRequest(Request):
    """A transfer that the library carries; `buffers` keeps what it uses alive."""

    __slots__ = ("_buffers", "_capacity", "_native", "_status")

    def __init__(self, native: Any, buffers: Any, capacity: int) -> None:
        self._native = native
        self._buffers = buffers
        self._capacity = capacity
        self._status: Any = None

    def wait(self) -> Status:
        if self._status is None:
            status: Any = MpiStatus()
            try:
                self._native.Wait(status)
            except MPI.Exception as error:
                _explain(error, status, self._capacity)
            self._end(status)
        return self._status

    def test(self) -> Status | None:
        if self._status is None:
            status: Any = MpiStatus()
            try:
                if not self._native.Test(status):
                    return None
            except MPI.Exception as error:
                _explain(error, status, self._capacity)
            self._end(status)
        return self._status

    def cancel(self) -> bool:
        if self._status is not None:
            return False
        self._native.Cancel()
        status: Any = MpiStatus()
        self._native.Wait(status)
        if status.Is_cancelled():
            self._end(Status(PROC_NULL, ANY_TAG, 0))
            return True
        self._end(status)
        return False

    def _end(self, status: Any) -> None:
        self._status = status
        self._buffers = None

    @classmethod
    def wait_all(cls, requests: Sequence[Any]) -> list[Status]:
        open_ones = [request for request in requests if request._status is None]
        statuses: list[Any] = [MpiStatus() for _ in open_ones]
        try:
            MPI.Request.Waitall([request._native for request in open_ones], statuses)
        except MPI.Exception:
            # Which of them failed, and how, is in their own statuses.
            for request, status in zip(open_ones, statuses):
                if status.Get_error() not in (MPI.SUCCESS, MPI.ERR_PENDING):
                    _explain(MPI.Exception(status.Get_error()), status, request._capacity)
            raise
        for request, status in zip(open_ones, statuses):
            request._end(status)
        return [request._status for request in requests]

    @classmethod
    def wait_any(cls, requests: Sequence[Any]) -> tuple[int, Status]:
        status: Any = MpiStatus()
        i = MPI.Request.Waitany([request._native for request in requests], status)
        requests[i]._end(status)
        return i, status


def _explain(error: MPI.Exception, status: Any, capacity: int) -> NoReturn:
    if error.Get_error_class() == MPI.ERR_TRUNCATE:
        nbytes = status.nbytes if status is not None else 0
        raise Truncated(nbytes if nbytes > capacity else None, capacity) from None
    raise CommError(f"MPI: {error.Get_error_string()}") from error


@lru_cache(maxsize=1024)
def datatype(layout: Layout, dtype: str) -> Any:
    """The derived datatype of a layout over elements of `dtype`, committed; kept, because programs use the same few again and again."""
    element = _element(np.dtype(dtype))
    if layout.kind == "vector":
        count, length, stride, start = layout.numbers
        inner = element.Create_vector(count, length, stride)
        made = MPI.Datatype.Create_struct([1], [start * np.dtype(dtype).itemsize], [inner])
    elif layout.kind == "subarray":
        shape, sizes, starts = layout.numbers
        if layout.count == 0:
            made = element.Create_contiguous(0)
        else:
            made = element.Create_subarray(shape, sizes, starts)
    elif layout.kind == "indexed":
        made = element.Create_indexed(*layout.numbers)
    else:
        inside = [datatype(part, kind) for _, kind, part in layout.numbers]
        made = MPI.Datatype.Create_struct([1] * len(inside), [offset for offset, _, _ in layout.numbers], inside)
    return made.Commit()


@lru_cache(maxsize=256)
def _element(dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "biufc" and dtype.isnative:
        try:
            return MPI.Datatype.fromcode(dtype.char)
        except (ValueError, KeyError):
            pass
    return MPI.BYTE.Create_contiguous(dtype.itemsize).Commit()


def _spec(array: Array) -> list[Any]:
    """An array as mpi4py takes it, whatever its type."""
    return [array, array.size, _element(array.dtype)]


def _native_type(array: Array, op: Op) -> bool:
    return (
        bool(op.native)
        and array.dtype.kind in op.native
        and array.dtype.isnative
        and array.dtype.itemsize <= 16
        and array.dtype.char not in "egG"
    )


class MpiRanks(Communicator):
    """The ranks of an MPI communicator."""

    def __init__(self, native: Any, nodes: Sequence[int], tally: Tally, seed: int) -> None:
        super().__init__(native.Get_rank(), nodes, tally, seed)
        #: The mpi4py communicator.
        self.native = native
        self._shadow_ranks: MpiRanks | None = None
        #: Whether the library exchanges rightly on boxes with short periodic axes, by (dims, periodic); shared with duplicates.
        self._right_boxes: dict[Any, bool] = {}
        self.__dict__.update(send=_sender(self, native.Send), recv=_receiver(self, native.Recv))

    # Messages

    def isend(self, buf: Buffer, dest: int, tag: int = 0) -> Request:
        check_tag(tag)
        check_rank(dest, self.size, "dest")
        spec, nbytes = self._outgoing(buf)
        counters = self._tally.now
        counters.calls += 1
        if dest == PROC_NULL:
            return Done()
        if dest != self.rank:
            counters.messages += 1
            counters.bytes += nbytes
        return MpiRequest(self.native.Isend(spec, dest, tag), spec, nbytes)

    def irecv(self, buf: Buffer, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        check_tag(tag, wild=True)
        check_rank(source, self.size, "source", wild=True)
        spec, nbytes = self._incoming(buf)
        self._tally.now.calls += 1
        if source == PROC_NULL:
            return Done()
        request = self.native.Irecv(spec, _SOURCE.get(source, source), MPI.ANY_TAG if tag == ANY_TAG else tag)
        return MpiRequest(request, spec, nbytes)

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
        """Say what was wrong with a call that the library refused; a type that mpi4py does not know goes as bytes."""
        check_tag(tag)
        check_rank(rank, self.size, "rank")
        if isinstance(error, MPI.Exception):
            _explain(error, status, buf.nbytes)
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
                _explain(error, None, nbytes)

    def _reduction(self, collective: str, op: Op, *args: Any) -> None:
        sample = args[0][0] if isinstance(args[0], list) else args[0]
        if collective not in self._chosen and _native_type(sample, op):
            self._run(collective, sample.nbytes, *args)
        else:
            super()._run(collective, sample.nbytes, *args)

    def _native_barrier(self) -> None:
        self.native.Barrier()

    def _native_bcast(self, whole: Array, root: int) -> None:
        self.native.Bcast(_spec(whole), root)

    def _native_reduce(self, mine: Array, answer: Array | None, op: Op, root: int) -> None:
        self.native.Reduce(MPI.IN_PLACE if mine is answer else _spec(mine), None if answer is None else _spec(answer), _OPS[op.name], root)

    def _native_allreduce(self, mine: Array, answer: Array, op: Op) -> None:
        self.native.Allreduce(MPI.IN_PLACE if mine is answer else _spec(mine), _spec(answer), _OPS[op.name])

    def _native_scan(self, mine: Array, answer: Array, op: Op) -> None:
        self.native.Scan(MPI.IN_PLACE if mine is answer else _spec(mine), _spec(answer), _OPS[op.name])

    def _native_exscan(self, mine: Array, answer: Array, op: Op) -> None:
        # Some libraries write into the buffer of rank 0, which the standard leaves open.
        kept = answer.copy() if self.rank == 0 else None
        self.native.Exscan(MPI.IN_PLACE if mine is answer else _spec(mine), _spec(answer), _OPS[op.name])
        if kept is not None:
            answer[...] = kept

    def _native_gather(self, mine: Array, blocks: Parts | None, root: int) -> None:
        self.native.Gatherv(_spec(mine), None if blocks is None else _parts(blocks), root)

    def _native_scatter(self, blocks: Parts | None, room: Array, root: int) -> None:
        self.native.Scatterv(None if blocks is None else _parts(blocks), _spec(room), root)

    def _native_allgather(self, mine: Array, blocks: Parts) -> None:
        if np.may_share_memory(mine, blocks[self.rank]):
            mine = mine.copy()
        self.native.Allgatherv(_spec(mine), _parts(blocks))

    def _native_alltoall(self, sends: Parts, recvs: Parts) -> None:
        self.native.Alltoallv(_parts(sends), _parts(recvs))

    _native_alltoallv = _native_alltoall

    def _native_reduce_scatter(self, sends: Parts, answer: Array, op: Op) -> None:
        self.native.Reduce_scatter(_spec(sends.whole), _spec(answer), sends.counts, _OPS[op.name])

    def alltoallw(self, send: Array, sendlayouts: Sequence[Any], recv: Array, recvlayouts: Sequence[Any]) -> Array:
        self._count_exchange(self._check_layouts(send, sendlayouts, recv, recvlayouts))
        self.native.Alltoallw(_by_layout(send, sendlayouts), _by_layout(recv, recvlayouts))
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
        spec, nbytes = self._outgoing(buf) if sends else self._incoming(buf)
        make = self.native.Send_init if sends else self.native.Recv_init
        request = make(spec, _SOURCE.get(rank, rank), MPI.ANY_TAG if tag == ANY_TAG else tag)

        def begin() -> Callable[[], Any]:
            counters = self._tally.now
            counters.calls += 1
            if sends and rank not in (self.rank, PROC_NULL):
                counters.messages += 1
                counters.bytes += nbytes
            request.Start()
            return MpiRequest(request, spec, nbytes).wait

        return Plan(begin)

    def _collective_plan(self, call: str, native: str, args: tuple[Any, ...]) -> Plan | None:
        """Persistent where the library has it, a nonblocking call each time otherwise; None where MPI lacks the operation or type."""
        answer: Any = None
        nbytes = 0
        if call == "bcast":
            answer, root = (*args, 0)[:2]
            whole = flat(answer, "bcast")
            nbytes = whole.nbytes if self.rank == root else 0
            given: tuple[Any, ...] = (_spec(whole), root)
        elif call == "allreduce":
            op = args[2] if len(args) > 2 else SUM
            mine, room, answer = self._two(args[0], args[1] if len(args) > 1 else None)
            if len(args) > 3 or not _native_type(mine, op):
                return None
            nbytes = mine.nbytes
            given = (MPI.IN_PLACE if mine is room else _spec(mine), _spec(room), _OPS[op.name])
        else:
            given = ()
        start = _starter(self.native, native, given)

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

    @property
    def _shadow(self) -> MpiRanks:
        if self._shadow_ranks is None:
            shadow = MpiRanks(self.native.Dup(), self.nodes, Tally(), self._seed)
            shadow._shadow_ranks = shadow
            self._shadow_ranks = shadow
        return self._shadow_ranks

    def window(self, nbytes: int, dtype: Any = np.uint8) -> Window:
        from armillary.comm.mpi_window import MpiWindow

        return MpiWindow(self, nbytes, dtype)

    def kill(self, rank: int) -> None:
        if rank == self.rank:
            os.kill(os.getpid(), signal.SIGKILL)

    def _neighbours(self, around: Neighbourhood) -> Any:
        from armillary.comm.mpi_neighbours import native_neighbours

        return native_neighbours(self, around)


def ranks_of(native: Any, seed: int = 0) -> MpiRanks:
    """The ranks of a communicator of mpi4py, in its order."""
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


def _sender(comm: MpiRanks, native: Any) -> Callable[..., None]:
    """The blocking send as a function of its own, because every lookup on the way to the native call costs.

    It counts after the native call, while the message is on its way.
    """
    tally, own, other, ndarray = comm._tally, comm.rank, comm.isend, np.ndarray

    def send(buf: Buffer, dest: int, tag: int = 0) -> None:
        if dest >= 0 <= tag <= 32767 and buf.__class__ is ndarray:
            try:
                native(buf, dest, tag)
            except Exception as error:
                comm._refused(error, buf, dest, tag)
            counters = tally.now
            counters.calls += 1
            if dest != own:
                counters.messages += 1
                counters.bytes += buf.nbytes
        else:
            other(buf, dest, tag).wait()

    return send


def _receiver(comm: MpiRanks, native: Any) -> Callable[..., Any]:
    """The blocking receive, likewise: all that is ours is done before the native call, which waits anyhow.

    A status that nobody kept is filled again, so that a call makes no object: making and ending one took longer than all the rest.
    """
    tally, other, new_status, ndarray, references = comm._tally, comm.irecv, MpiStatus, np.ndarray, sys.getrefcount
    status = new_status()

    def recv(buf: Buffer, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Any:
        nonlocal status
        if source >= 0 <= tag <= 32767 and buf.__class__ is ndarray:
            tally.now.calls += 1
            filled = status
            # Three know it now: this closure, `filled`, and the question itself.
            if references(filled) > 3:
                filled = status = new_status()
            try:
                native(buf, source, tag, filled)
            except Exception as error:
                comm._refused(error, buf, source, tag, filled)
            return filled
        return other(buf, source, tag).wait()

    return recv


def _parts(blocks: Parts) -> list[Any]:
    """Parts of one array, as mpi4py takes them."""
    return [blocks.whole, blocks.counts, blocks.starts, _element(blocks.whole.dtype)]


def _by_layout(array: Array, layouts: Sequence[Any]) -> list[Any]:
    types = [MPI.BYTE if layout is None else datatype(layout, array.dtype.str) for layout in layouts]
    return [array, [0 if layout is None else 1 for layout in layouts], [0] * len(layouts), types]


def _starter(native: Any, name: str, args: tuple[Any, ...]) -> Callable[[], Callable[[], Any]]:
    """What starts a prepared collective call and gives what waits for it."""
    try:
        request = getattr(native, f"{name}_init")(*args)
    except (NotImplementedError, MPI.Exception):
        call = partial(getattr(native, f"I{name.lower()}"), *args)
        return lambda: call().Wait

    def start() -> Callable[[], Any]:
        request.Start()
        return request.Wait

    return start
