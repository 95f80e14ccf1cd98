"""Blocking sends and receives over MPI, with one Python call around the native ones.

An array that is sent or received a second time with the same rank and tag gets a persistent request, which lives as long as the array.
Starting and awaiting that request takes less time than mpi4py needs to look at an array, so that these calls are no slower than mpi4py's
own. Other buffers go to the library's `Send` and `Recv`. What a correct call does not need, such as checks of the arguments, is done after
the library has refused the call.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from armillary.comm.failures import CommError
from armillary.comm.messages.buffers import Buffer
from armillary.comm.messages.envelope import ANY_SOURCE, ANY_TAG, NOTHING, PROC_NULL
from armillary.comm.mpi.datatypes import unowned_spec
from armillary.comm.mpi.requests import MpiStatus, explain
from armillary.comm.plans import NOT_STARTED, STARTED, Plan

if TYPE_CHECKING:
    from armillary.comm.mpi.ranks import MpiRanks

#: A buffer by its identity, a rank, and a tag.
_Key = tuple[int, int, int]
#: The start of a persistent request, its wait, and the bytes of the message.
_Ready = tuple[Callable[[], Any], Callable[..., Any], int]
#: The number of calls that are remembered before any of them was made a second time.
_SEEN = 1024


class _Prepared(dict[_Key, _Ready]):
    """The calls that have a persistent request, until their array dies.

    A call takes its entry out and puts it back when it is done, so that two threads never start one request, and a request that failed is
    never started again.
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        super().__init__()
        self._make = make
        self._seen: dict[_Key, Any] = {}
        #: The weak references to the arrays, with the requests to free when one dies.
        self._watched: dict[_Key, tuple[Any, Any]] = {}
        self._end = weakref.finalize(self, _free_all, self._watched)

    def offer(self, key: _Key, array: Any) -> None:
        """Prepare the call if it was made before with the same array, and remember it otherwise."""
        before = self._seen.get(key)
        if before is None or before() is not array:
            if len(self._seen) >= _SEEN:
                self._seen.clear()
            self._seen[key] = weakref.ref(array)
            return
        del self._seen[key]
        if key in self._watched or not array.nbytes or not array.flags.forc:
            return
        whole = array if array.flags.c_contiguous else array.T
        request = self._make(unowned_spec(whole), key[1], key[2])
        # The callback must not keep this table alive, because what it watches is freed when the table dies.
        table, watched = weakref.ref(self), self._watched

        def gone(_: Any) -> None:
            ready = table()
            if ready is not None:
                ready.pop(key, None)
            _free(watched.pop(key, (None, None))[1])

        self._watched[key] = (weakref.ref(array, gone), request)
        self[key] = (request.Start, request.Wait, array.nbytes)


def _free(request: Any) -> None:
    if request is not None and not MPI.Is_finalized():
        request.Free()


def _free_all(watched: dict[_Key, tuple[Any, Any]]) -> None:
    for _, request in watched.values():
        _free(request)
    watched.clear()


class MessagePlan(Plan):
    """A prepared send or receive, whose `start` and `wait` are functions of its own around those of one persistent request."""

    __slots__ = ("__weakref__", "_memory", "start", "wait")

    def __init__(self, comm: MpiRanks, request: Any, memory: Any, nbytes: int, dest: int | None) -> None:
        """Take a request that sends the `nbytes` bytes of `memory` to rank `dest`, or that receives into them if `dest` is None."""
        tally, begin, end, new_status = comm._tally, request.Start, request.Wait, MpiStatus
        messages = int(dest is not None and dest not in (comm.rank, PROC_NULL))
        sent = messages * nbytes
        under_way = False

        def start() -> Any:
            nonlocal under_way
            if under_way:
                raise CommError(STARTED)
            begin()
            under_way = True
            counters = tally.now
            counters.calls += 1
            counters.messages += messages
            counters.bytes += sent
            return self

        def wait() -> Any:
            nonlocal under_way
            if not under_way:
                raise CommError(NOT_STARTED)
            under_way = False
            status: Any = new_status() if dest is None else NOTHING
            try:
                if dest is None:
                    end(status)
                else:
                    end()
            except MPI.Exception as error:
                explain(error, status if dest is None else None, nbytes)
            return status

        #: Kept alive as long as the plan.
        self._memory = memory
        plan: Any = self
        plan.start, plan.wait = start, wait
        weakref.finalize(self, _free, request)


def sender(comm: MpiRanks, native: Any) -> Callable[..., None]:
    """Return the blocking send of these ranks as a function of its own, because every attribute lookup on the way costs time.

    It counts while the message is on its way.
    """
    ready = _Prepared(native.Send_init)
    tally, own, other, ndarray, send_now = comm._tally, comm.rank, comm.isend, np.ndarray, native.Send
    take, offer = ready.pop, ready.offer

    def send(buf: Buffer, dest: int, tag: int = 0) -> None:
        key = (id(buf), dest, tag)
        prepared = take(key, None)
        if prepared is not None:
            start, wait, nbytes = prepared
            try:
                start()
                counters = tally.now
                counters.calls += 1
                if dest != own:
                    counters.messages += 1
                    counters.bytes += nbytes
                wait()
            except MPI.Exception as error:
                explain(error, None, nbytes)
            ready[key] = prepared
        elif dest >= 0 <= tag <= 32767 and buf.__class__ is ndarray:
            try:
                send_now(buf, dest, tag)
            except Exception as error:
                comm._refused(error, buf, dest, tag)
            else:
                offer(key, buf)
            counters = tally.now
            counters.calls += 1
            if dest != own:
                counters.messages += 1
                counters.bytes += buf.nbytes
        else:
            other(buf, dest, tag).wait()

    return send


def receiver(comm: MpiRanks, native: Any) -> Callable[..., Any]:
    """Return the blocking receive of these ranks as a function of its own. It counts before it waits.

    It fills a status again that nobody kept, so that a call makes no object, because making and freeing one took longer than everything
    else.
    """
    ready = _Prepared(native.Recv_init)
    tally, other, new_status, ndarray, references = comm._tally, comm.irecv, MpiStatus, np.ndarray, sys.getrefcount
    take, offer, receive_now = ready.pop, ready.offer, native.Recv
    status = new_status()

    def recv(buf: Buffer, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Any:
        nonlocal status
        key = (id(buf), source, tag)
        prepared = take(key, None)
        if prepared is None and not (source >= 0 <= tag <= 32767 and buf.__class__ is ndarray):
            return other(buf, source, tag).wait()
        filled = status
        # It has three references here: from this closure, from `filled`, and from the argument of getrefcount.
        if references(filled) > 3:
            filled = status = new_status()
        if prepared is None:
            tally.now.calls += 1
            try:
                receive_now(buf, source, tag, filled)
            except Exception as error:
                comm._refused(error, buf, source, tag, filled)
            else:
                offer(key, buf)
            return filled
        start, wait, nbytes = prepared
        if not buf.flags.writeable:
            ready[key] = prepared
            return other(buf, source, tag).wait()
        try:
            start()
            tally.now.calls += 1
            wait(filled)
        except MPI.Exception as error:
            explain(error, filled, nbytes)
        ready[key] = prepared
        return filled

    return recv
