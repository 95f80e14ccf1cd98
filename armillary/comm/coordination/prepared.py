"""Transfers that are prepared at the first use of their buffers and remembered until a buffer dies.

A backend says how one message is prepared, begun and awaited, and how one collective call is prepared and made. Looking up what is
remembered, checking arguments, counting, keeping buffers alive and raising signals is the same for all of them and stands here. The calls
are closures: calling `Coordinator.post` is calling the function itself, without a lookup on the way.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from armillary.comm.collectives.operations import SUM, Op
from armillary.comm.communicator import Communicator
from armillary.comm.coordination.signals import check_signal
from armillary.comm.coordination.transfers import Transfers
from armillary.comm.messages.buffers import Array, Buffer
from armillary.comm.messages.envelope import IN_PLACE, PROC_NULL, check_rank


class Remembered(dict[Any, Any]):
    """What was prepared for buffers, by their identity, until one of them dies."""

    def __init__(self, forgotten: Callable[[Any], None] | None = None) -> None:
        super().__init__()
        #: The weak references, which must live to report a death.
        self._watched: dict[Any, list[Any]] = {}
        #: Called with each entry that is forgotten.
        self._forgotten = forgotten

    def keep(self, key: Any, buffers: tuple[Any, ...], entry: Any) -> Any:
        """Remember `entry` under a key made of the identities of these buffers, unless one of them cannot be watched."""

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


class Message:
    """A message of one buffer to or from one rank, prepared.

    Its functions are attributes, so that a backend can put those of its library there and no call of Python comes between. They are
    loaded before they are called, because Python 3.11 is slow to call an attribute in a slot directly.
    """

    __slots__ = ("again", "batch", "bytes", "messages", "nbytes", "now", "request", "start")

    def __init__(self, nbytes: int, now: Callable[[], Any], start: Callable[[], Any], again: Callable[[], Any] | None = None) -> None:
        #: The length of the message.
        self.nbytes = nbytes
        #: Sends or receives, and returns when the buffer may be used again.
        self.now = now
        #: Starts the message in a batch, and returns what is waited for at its end, or None if that is `request`.
        self.start = start
        self.request: Any = None
        #: Starts the message once more in the same batch, and returns what is waited for.
        self.again = again or start
        #: The number of the batch that last started the message.
        self.batch = -1
        #: What a post adds to the counters.
        self.messages = 0
        self.bytes = 0

    def free(self) -> None:
        """Free what the message holds of the library."""


class Call:
    """A collective call with its buffers, prepared. `perform` makes it; `nbytes` is its payload."""

    __slots__ = ("answer", "counts", "displacements", "nbytes", "op", "perform")

    def __init__(self, nbytes: int, perform: Callable[[], Any], answer: Any = None) -> None:
        self.nbytes = nbytes
        self.perform = perform
        #: The array to return, if it is not the one that the caller gave.
        self.answer = answer
        #: The operation of a reduction, and the counts and displacements of a gather.
        self.op: Any = None
        self.counts: Any = None
        self.displacements: Any = None


class PreparedTransfers(Transfers):
    """Transfers whose messages and collective calls a backend prepares."""

    def __init__(self, comm: Communicator, stream: Any = None) -> None:
        super().__init__(comm, stream)
        #: What was begun and not awaited yet; while it is empty, `wait` has nothing to do.
        self._begun: list[Any] = []

    def _bind_messages(
        self,
        prepared: Callable[[Buffer, int, str, int], Message],
        finish: Callable[[list[Any]], Any],
        failure: tuple[type[Exception], Callable[[Any], Exception]],
        forgets: bool = False,
        raises: bool = True,
    ) -> None:
        """Bind the calls of messages and of batches.

        `prepared(buffer, count, what, rank)` prepares a message, where `what` is "src" or "dst". `finish(begun)` waits for all that a
        batch has begun. `failure` is the library's exception and what makes an error of it. A batch that ends with an exception is
        finished too, unless the backend `forgets`: then all that was prepared is forgotten, because it may still be under way. Signals
        are raised when their messages have arrived, unless `raises` is false because a stream orders everything.
        """
        comm, tally = self.comm, self.comm._tally
        sends, recvs = Remembered(Message.free), Remembered(Message.free)
        weakref.finalize(self, _free, sends, recvs)
        begun = self._begun
        #: The buffers that the open batch uses, and the signals that it raises with their values.
        buffers: list[Any] = []
        signals: list[Any] = []
        values: list[int] = []
        inside, batch = False, 0
        failed, explained = failure

        def prepare(table: Remembered, buffer: Buffer, count: int, what: str, signal: Any, rank: int) -> Message:
            check_signal(signal)
            check_rank(rank, comm.size, "dest" if what == "src" else "source")
            one = prepared(buffer, count, what, rank)
            counts = what == "src" and rank not in (comm.rank, PROC_NULL)
            one.messages, one.bytes = (1, one.nbytes) if counts else (0, 0)
            table.keep((id(buffer), count, rank), (buffer,), one)
            return one

        def post(src: Buffer, dst: Buffer, count: int, signal: Array | None, value: int, dest: int) -> None:
            one = sends.get((id(src), count, dest)) or prepare(sends, src, count, "src", signal, dest)
            counters = tally.now
            counters.calls += 1
            counters.messages += one.messages
            counters.bytes += one.bytes
            if not inside:
                now = one.now
                now()
            elif one.batch == batch:
                begun.append(one.again())
            else:
                one.batch = batch
                start = one.start
                begun.append(start() or one.request)
                buffers.append(src)

        def acknowledge(dst: Buffer, count: int, signal: Array | None, value: int, source: int) -> None:
            one = recvs.get((id(dst), count, source)) or prepare(recvs, dst, count, "dst", signal, source)
            tally.now.calls += 1
            if not inside:
                now = one.now
                now()
                if signal is not None and raises:
                    signal[0] = value
                return
            if one.batch == batch:
                begun.append(one.again())
            else:
                one.batch = batch
                start = one.start
                begun.append(start() or one.request)
                buffers.append(dst)
            if signal is not None and raises:
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
            nonlocal batch
            if not begun:
                return
            batch += 1
            try:
                finish(begun)
                for i in range(len(signals)):
                    signals[i][0] = values[i]
            except failed as error:
                raise explained(error) from error
            finally:
                begun.clear()
                buffers.clear()
                signals.clear()
                values.clear()

        def drop() -> None:
            nonlocal inside
            inside = False
            signals.clear()
            values.clear()
            if forgets:
                for table in (begun, buffers, sends, recvs):
                    table.clear()
            else:
                wait()

        self.__dict__.update(post=post, acknowledge=acknowledge, begin=begin, end=end, wait=wait, drop=drop)

    def _bind_collectives(
        self,
        reduction: Callable[[Any, Any, Op], Call | None],
        gathering: Callable[[Any, Any, Any, Any], Call | None],
        broadcasting: Callable[[Buffer, int], Call | None] | None = None,
        in_rank_order: bool = False,
    ) -> None:
        """Bind `allreduce`, `allgatherv` and, if there is a `broadcasting`, `broadcast`.

        Each function prepares a call, or returns None where the communicator's own call has to be made. With `in_rank_order` reductions
        combine in the order of the ranks anyway, so that `order="rank"` is no reason for the communicator's own call.
        """
        comm, tally, wait, begun = self.comm, self.comm._tally, self.wait, self._begun
        general_allreduce, general_allgatherv, general_broadcast = super().allreduce, super().allgatherv, super().broadcast
        reductions, gathers, broadcasts = Remembered(), Remembered(), Remembered()
        alone = comm.size == 1

        def perform(known: Call, given: Any) -> Any:
            if begun:
                wait()
            counters = tally.now
            counters.calls += 1
            counters.collectives += 1
            counters.bytes += known.nbytes
            native = known.perform
            native()
            return given if known.answer is None else known.answer

        def allreduce(send: Any, recv: Any = None, op: Op = SUM, order: str | None = None) -> Any:
            if order is not None and not (comm._ordered(order) and in_rank_order):
                return general_allreduce(send, recv, op, order)
            known = reductions.get((id(send), id(recv), op.name))
            if known is None or known.op is not op:
                known = None if "allreduce" in comm._chosen else reduction(send, recv, op)
                if known is None:
                    return general_allreduce(send, recv, op, order)
                if alone:
                    known.nbytes = 0
                known.op = op
                if recv is not None:
                    reductions.keep((id(send), id(recv), op.name), (send, recv), known)
            return perform(known, recv)

        def allgatherv(send: Any, recv: Any = None, counts: Any = None, displacements: Any = None) -> Any:
            known = gathers.get((id(send), id(recv)))
            if known is None or known.counts is not counts or known.displacements is not displacements:
                known = None if counts is None or "allgather" in comm._chosen else gathering(send, recv, counts, displacements)
                if known is None:
                    return general_allgatherv(send, recv, counts, displacements)
                known.counts, known.displacements = counts, displacements
                if alone:
                    known.nbytes = 0
                # Lists may change under the same identity, so calls with them are not remembered.
                if recv is not None and type(counts) is tuple and type(displacements) in (tuple, type(None)):
                    gathers.keep((id(send), id(recv)), (send, recv), known)
            return perform(known, recv)

        def broadcast(buf: Buffer, root: int = 0) -> Buffer:
            known = broadcasts.get((id(buf), root))
            if known is None:
                assert broadcasting is not None
                known = None if "bcast" in comm._chosen else broadcasting(buf, root)
                if known is None:
                    return general_broadcast(buf, root)
                if alone or comm.rank != root:
                    known.nbytes = 0
                broadcasts.keep((id(buf), root), (buf,), known)
            return perform(known, buf)

        self.__dict__.update(allreduce=allreduce, allgatherv=allgatherv)
        if broadcasting is not None:
            self.__dict__.update(broadcast=broadcast)


class _Memory:
    """Memory by its address, as NumPy takes it."""

    def __init__(self, array: Array) -> None:
        self.__array_interface__ = {"data": (array.ctypes.data, False), "shape": array.shape, "typestr": array.dtype.str, "version": 3}


def unowned(array: Array) -> Array:
    """Return another array over the same memory that does not keep it alive, to remember a buffer only while it lives."""
    return np.asarray(_Memory(array))


def _free(*tables: Remembered) -> None:
    for table in tables:
        for one in list(table.values()):
            one.free()
        table.clear()
