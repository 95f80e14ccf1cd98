"""The transfers of a coordinator as messages and collective calls of its communicator.

Every backend can work this way. Those that have a better one derive from `Transfers` and replace the parts that differ; `prepared` holds
what several of them share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from armillary.comm.collectives.operations import SUM, Op
from armillary.comm.communicator import Communicator
from armillary.comm.coordination.signals import check_signal
from armillary.comm.messages.buffers import Array, Buffer, flat
from armillary.comm.messages.envelope import InPlace
from armillary.comm.messages.requests import Request
from armillary.errors import InputError


class Transfers:
    """Posts as messages, which each pair of ranks matches in program order.

    The receiver raises its own signal when the message has arrived.
    """

    #: The modes in which a kernel can be bound.
    modes: tuple[str, ...] = ("host",)
    #: Whether the ranks have devices, whose work a stream orders.
    on_device: ClassVar[bool] = False

    def __init__(self, comm: Communicator, stream: Any = None) -> None:
        if stream is not None and not self.on_device:
            raise InputError("stream: found one; expected None, because these ranks have no device")
        self.comm = comm
        self._ranks = comm._shadow
        #: Whether a batch is open.
        self._inside = False
        self._posted: list[Request] = []
        self._awaited: list[tuple[Any, ...]] = []
        #: Coordinators of one communicator are made by all ranks in the same order, so this number names the coordinator.
        self._number = comm.__dict__["_coordinators"] = comm.__dict__.get("_coordinators", 0) + 1
        #: Memory that all ranks share and the name of this coordinator in it, if the ranks live in one process.
        self._shared: dict[Any, Any] | None = None
        self._name: tuple[Any, ...] = ()

    def set_mode(self, mode: str) -> None:
        """Set the mode of the coordinator, before the first call."""

    # Batches

    def begin(self) -> None:
        """Open a batch."""
        self._inside = True

    def end(self) -> None:
        """Close the batch; everything in it is done afterwards."""
        self._inside = False
        self.wait()

    def drop(self) -> None:
        """Close a batch that ended with an exception, without waiting for anything in it."""
        self._inside = False
        self._forget()

    def _forget(self) -> None:
        self._posted.clear()
        self._awaited.clear()

    # Messages

    def post(self, src: Buffer, dst: Buffer, count: int, signal: Array | None, value: int, dest: int) -> None:
        """Do `Coordinator.post`."""
        check_signal(signal)
        data = first(src, count, "src")
        self.comm._count_message(dest, data.nbytes)
        values = self._values(self.comm.rank, dest)
        if values is not None:
            values.append(value)
        request = self._ranks.isend(data, dest, 0)
        if self._inside:
            self._posted.append(request)
        else:
            request.wait()

    def acknowledge(self, dst: Buffer, count: int, signal: Array | None, value: int, source: int) -> None:
        """Do `Coordinator.acknowledge`."""
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

    def _values(self, source: int, dest: int) -> deque[int] | None:
        """Return the values posted from one rank to another and not acknowledged yet; None unless both live in one process."""
        if self._shared is None or source < 0 or dest < 0:
            return None
        found: deque[int] = self._shared.setdefault((*self._name, "values", source, dest), deque())
        return found

    # Memory and kernels

    def alloc(self, shape: Any, dtype: Any = np.float64) -> Any:
        """Do `Coordinator.alloc`."""
        return self.comm.alloc(shape, dtype)

    def free(self, array: Any) -> None:
        """Do `Coordinator.free`."""

    def bound(self, kernel: Callable[..., Any], grid: Any, block: Any, args: tuple[Any, ...], mode: str) -> Callable[[], Any]:
        """Return the function that `Coordinator.launch` calls."""
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
        """Return this rank's block of a buffer that has one block per rank."""
        everything, rank, size = flat(whole, "recv"), self.comm.rank, self.comm.size
        if counts is None:
            block = everything.size // size
            return everything[rank * block : (rank + 1) * block]
        start = sum(counts[:rank]) if displacements is None else displacements[rank]
        return everything[int(start) : int(start) + int(counts[rank])]


def first(buffer: Buffer, count: int, what: str) -> Array:
    """Return a view of the first `count` elements of a contiguous buffer."""
    if type(buffer).__module__.partition(".")[0] in ("cupy", "torch") and getattr(buffer, "is_cuda", True):
        raise InputError(f"{what}: found memory of a device; expected an array of the host, or ranks that have devices (nccl)")
    array = flat(buffer, what, writable=what == "dst")
    check_count(count, array.size, what)
    return array[:count]


def check_count(count: int, size: int, what: str) -> None:
    """Raise `InputError` unless a buffer of `size` elements has `count` elements."""
    if not 0 <= count <= size:
        raise InputError(f"count: found {count}; expected 0 to the {size} elements of {what}")
