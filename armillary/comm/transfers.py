"""What a coordinator does with messages and collective calls of any communicator: the way of each backend that has no better one."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from armillary.comm.buffers import Array, Buffer, flat
from armillary.comm.communicator import Communicator
from armillary.comm.message import IN_PLACE, InPlace
from armillary.comm.operations import SUM, Op
from armillary.comm.requests import Request
from armillary.comm.signals import check_signal
from armillary.errors import InputError


class Transfers:
    """Posts as messages, matched in program order between each pair; the receiver raises its own signal when the message is there."""

    #: The modes in which a kernel can be bound.
    modes: tuple[str, ...] = ("host",)

    def __init__(self, comm: Communicator, stream: Any = None) -> None:
        if stream is not None:
            raise InputError("stream: found one; expected None where ranks have no device")
        self.comm = comm
        self._ranks = comm._shadow
        self._inside = False
        self._posted: list[Request] = []
        self._awaited: list[tuple[Any, ...]] = []

    def _values(self, source: int, dest: int) -> deque[int] | None:
        """The values posted from one rank to another and not acknowledged yet, where both live in one process; else None."""
        return None

    def set_mode(self, mode: str) -> None:
        """The mode of the coordinator, before the first call."""

    def begin(self) -> None:
        """A batch begins."""
        self._inside = True

    def end(self) -> None:
        """A batch ends: everything in it is done."""
        self._inside = False
        self.wait()

    def drop(self) -> None:
        """A batch ends by an exception: nothing of it is waited for."""
        self._inside = False
        self._posted.clear()
        self._awaited.clear()

    def post(self, src: Buffer, dst: Buffer, count: int, signal: Array | None, value: int, dest: int) -> None:
        """See `Coordinator`."""
        check_signal(signal)
        data = first(src, count, "src")
        counters = self.comm._tally.now
        counters.calls += 1
        if dest != self.comm.rank and dest >= 0:
            counters.messages += 1
            counters.bytes += data.nbytes
        values = self._values(self.comm.rank, dest)
        if values is not None:
            values.append(value)
        request = self._ranks.isend(data, dest, 0)
        if self._inside:
            self._posted.append(request)
        else:
            request.wait()

    def acknowledge(self, dst: Buffer, count: int, signal: Array | None, value: int, source: int) -> None:
        """See `Coordinator`."""
        check_signal(signal)
        self.comm._tally.now.calls += 1
        room = first(dst, count, "dst")
        self._awaited.append((self._ranks.irecv(room, source, 0), signal, value, source, room))
        if not self._inside:
            self._acknowledge()

    def wait(self) -> None:
        """Return when everything posted and acknowledged so far is done."""
        self._acknowledge()
        posted, self._posted = self._posted, []
        self.comm.waitall(posted)

    def _acknowledge(self) -> None:
        awaited, self._awaited = self._awaited, []
        for request, signal, value, source, room in awaited:
            request.wait()
            values = self._values(source, self.comm.rank)
            while values and values.popleft() < value:
                self._ranks.irecv(room, source, 0).wait()
            if signal is not None and signal.flat[0] < value:
                signal.flat[0] = value

    def alloc(self, shape: Any, dtype: Any = np.float64) -> Any:
        """Zeros for transfers, allocated by all ranks together."""
        return self.comm.alloc(shape, dtype)

    def free(self, array: Any) -> None:
        """Give them back."""

    def bound(self, kernel: Callable[..., Any], grid: Any, block: Any, args: tuple[Any, ...], mode: str) -> Callable[[], Any]:
        """What `launch` calls."""
        return lambda: kernel(*args)

    # Collective calls

    def allreduce(self, send: Any, recv: Any = None, op: Op = SUM, order: str | None = None) -> Any:
        self.wait()
        return self.comm.allreduce(send, recv, op, order)

    def reduce(self, send: Any, recv: Any = None, op: Op = SUM, root: int = 0, order: str | None = None) -> Any:
        self.wait()
        return self.comm.reduce(send, recv, op, root, order)

    def broadcast(self, buf: Buffer, root: int = 0) -> Buffer:
        self.wait()
        return self.comm.bcast(buf, root)

    def allgather(self, send: Any, recv: Any = None) -> Any:
        self.wait()
        return self.comm.allgather(send, recv)

    def allgatherv(self, send: Any, recv: Any = None, counts: Any = None, displacements: Any = None) -> Any:
        self.wait()
        if isinstance(send, InPlace):
            send = self._own(recv, counts, displacements).copy()
        return self.comm.allgatherv(send, recv, counts, displacements)

    def gather(self, send: Any, recv: Any = None, root: int = 0) -> Any:
        self.wait()
        if isinstance(send, InPlace):
            send = self._own(recv).copy()
        return self.comm.gather(send, recv, root)

    def gatherv(self, send: Any, recv: Any = None, counts: Any = None, displacements: Any = None, root: int = 0) -> Any:
        self.wait()
        if isinstance(send, InPlace):
            send = self._own(recv, counts, displacements).copy()
        return self.comm.gatherv(send, recv, counts, displacements, root)

    def scatter(self, send: Any, recv: Any, root: int = 0) -> Any:
        self.wait()
        if isinstance(recv, InPlace):
            self.comm.scatter(send, self._own(send).copy(), root)
            return send
        return self.comm.scatter(send, recv, root)

    def scatterv(self, send: Any, counts: Any, recv: Any, displacements: Any = None, root: int = 0) -> Any:
        self.wait()
        if isinstance(recv, InPlace):
            self.comm.scatterv(send, counts, self._own(send, counts, displacements).copy(), displacements, root)
            return send
        return self.comm.scatterv(send, counts, recv, displacements, root)

    def alltoall(self, send: Any, recv: Any = None) -> Any:
        self.wait()
        return self.comm.alltoall(flat(recv, "recv").copy() if isinstance(send, InPlace) else send, recv)

    def alltoallv(
        self,
        send: Any,
        sendcounts: Any,
        recv: Any = None,
        recvcounts: Any = None,
        senddisplacements: Any = None,
        recvdisplacements: Any = None,
    ) -> Any:
        self.wait()
        if isinstance(send, InPlace):
            send, sendcounts, senddisplacements = flat(recv, "recv").copy(), recvcounts, recvdisplacements
        return self.comm.alltoallv(send, sendcounts, recv, recvcounts, senddisplacements, recvdisplacements)

    def _own(self, whole: Any, counts: Any = None, displacements: Any = None) -> Array:
        """This rank's block of a buffer that has one for each."""
        everything, rank, size = flat(whole, "recv"), self.comm.rank, self.comm.size
        if counts is None:
            block = everything.size // size
            return everything[rank * block : (rank + 1) * block]
        start = sum(counts[:rank]) if displacements is None else displacements[rank]
        return everything[int(start) : int(start) + int(counts[rank])]


def first(buffer: Buffer, count: int, what: str) -> Array:
    """The first `count` elements of a contiguous buffer, as a view."""
    if type(buffer).__module__.partition(".")[0] in ("cupy", "torch") and getattr(buffer, "is_cuda", True):
        raise InputError(f"{what}: found memory of a device; expected an array of the host, or ranks that have devices (nccl)")
    array = flat(buffer, what, writable=what == "dst")
    if not 0 <= count <= array.size:
        raise InputError(f"count: found {count}; expected 0 to the {array.size} elements of {what}")
    return array[:count]


class _Memory:
    """Memory by its address, for NumPy."""

    def __init__(self, array: Array) -> None:
        self.__array_interface__ = {"data": (array.ctypes.data, False), "shape": array.shape, "typestr": array.dtype.str, "version": 3}


def unowned(array: Array) -> Array:
    """The same memory as another array that does not keep it alive: for what is remembered of a buffer only while it lives."""
    return np.asarray(_Memory(array))


class Remembered(dict[Any, Any]):
    """What was found out about buffers, by their identity, until one of them dies."""

    def __init__(self, forgotten: Callable[[Any], None] | None = None) -> None:
        super().__init__()
        #: The weak references, without which nobody would hear of a death.
        self._watched: dict[Any, list[Any]] = {}
        #: Called with what was remembered when it is forgotten.
        self._forgotten = forgotten

    def keep(self, key: Any, buffers: tuple[Any, ...], entry: Any) -> Any:
        """Remember `entry` under a key that is made of the identities of these buffers; not where one of them cannot be watched."""

        def gone(_: Any) -> None:
            self._watched.pop(key, None)
            entry = self.pop(key, None)
            if entry is not None and self._forgotten is not None:
                self._forgotten(entry)

        try:
            self._watched[key] = [weakref.ref(buffer, gone) for buffer in buffers if buffer is not None and buffer is not IN_PLACE]
        except TypeError:
            return entry
        self[key] = entry
        return entry
