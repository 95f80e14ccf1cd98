"""The communicator over threads of this process.

A message is copied once, by whichever side comes second; NumPy releases the GIL while it copies a large one. Short messages (up to
`EAGER` bytes) are copied aside, so that their sender does not wait for the receiver. The rank that fails first ends the run: the other
ranks get `Aborted` at their next call, or where they wait.
"""

from __future__ import annotations

import threading
from _thread import allocate_lock
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np

from armillary.comm.communicator import Communicator
from armillary.comm.counters import Tally
from armillary.comm.failures import Aborted, Truncated
from armillary.comm.messages.buffers import Buffer, Bytes, incoming, outgoing
from armillary.comm.messages.envelope import (
    ANY_SOURCE,
    ANY_TAG,
    NOTHING,
    PROC_NULL,
    Status,
    check_rank,
    check_tag,
    receive_in_words,
    send_in_words,
)
from armillary.comm.messages.matching import Matcher
from armillary.comm.messages.requests import Done, Matched, Request
from armillary.comm.windows import Window, elements

#: The longest message, in bytes, that does not wait for its receiver.
EAGER = 16384


class World:
    """What the ranks of one run share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.boxes = [Box() for _ in range(size)]
        #: Numbers of the communicators' contexts, by name.
        self._contexts: dict[Any, int] = {}
        #: What the ranks leave for each other, under keys that begin with the context of a communicator.
        self.shared: dict[Any, Any] = {}
        self.lock = allocate_lock()
        self.aborted = False
        #: The rank, the exception and the traceback of the first failure.
        self.failure: tuple[int, BaseException, str] | None = None

    def context(self, name: Any) -> int:
        """Return a small number for a name, the same for every rank."""
        with self.lock:
            return self._contexts.setdefault(name, len(self._contexts))

    def check(self) -> None:
        """Raise `Aborted` if another rank has failed."""
        if self.aborted:
            raise Aborted("another rank failed")

    def abort(self) -> None:
        """Wake every rank that waits, so that it finds `aborted`."""
        self.aborted = True
        for box in self.boxes:
            waits = box.waits
            if waits is not None:
                _wake(waits[0])

    def deadlock(self) -> tuple[Any, ...] | None:
        """Return what every unfinished rank waits for if all of them wait and nothing that they wait for has happened, else None."""
        waiting = []
        for box in self.boxes:
            if box.ended:
                continue
            waits = box.waits
            if waits is None or any(request.done for request in waits[1]):
                return None
            waiting.append(waits)
        return tuple(waiting) or None

    def pending(self) -> str:
        """Return in words what each rank waits for, for at most 20 ranks."""
        lines = [f"rank {rank}: {box.waits[1][0].what}" for rank, box in enumerate(self.boxes) if not box.ended and box.waits is not None]
        return "; ".join(lines[:20]) + (f"; and {len(lines) - 20} more" if len(lines) > 20 else "")


class Box:
    """The messages and receives of one rank, and what it waits for."""

    __slots__ = ("ended", "lock", "matcher", "waits")

    def __init__(self) -> None:
        self.lock = allocate_lock()
        self.matcher = Matcher()
        #: The lock that wakes the rank and the requests that it waits for; None while it runs.
        self.waits: tuple[Any, Sequence[ThreadRequest]] | None = None
        self.ended = False


class ThreadRequest(Matched):
    """A send or receive between threads, which either side completes."""

    __slots__ = ("comm", "peer", "received", "tag", "waker")

    def __init__(self, comm: ThreadRanks, received: bool, peer: int, tag: int, data: Bytes) -> None:
        # The base's fields are assigned here, because a call of its `__init__` for every message costs time.
        self.data = data
        self.done = False
        self.error = self.status = self.after = None
        self.comm = comm
        self.received = received
        self.peer = peer
        self.tag = tag
        #: The lock on which a rank waits for this request.
        self.waker: Any = None

    @property
    def what(self) -> str:
        """The operation in words."""
        if self.received:
            return receive_in_words("recv", self.peer, self.tag)
        return send_in_words(self.peer, self.tag, self.data.nbytes)

    def complete(self) -> None:
        """Mark the request as done and wake the rank that waits for it."""
        self.done = True
        waker = self.waker
        if waker is not None:
            _wake(waker)

    def test(self) -> Status | None:
        self.comm._world.check()
        return self._end() if self.done else None

    def cancel(self) -> bool:
        if self.done:
            return False
        comm = self.comm
        box = comm._box if self.received else comm._world.boxes[comm._members[self.peer]]
        with box.lock:
            if self.received:
                taken = box.matcher.withdraw(comm._context, self.peer, self.tag, self)
            else:
                taken = box.matcher.recall(comm._context, comm.rank, self.tag, self)
        if taken:
            self.status = NOTHING
            self.after = None
            self.complete()
        return taken

    def _until(self, requests: Sequence[ThreadRequest]) -> None:
        waker = allocate_lock()
        waker.acquire()
        for request in requests:
            request.waker = waker
        box, world = self.comm._box, self.comm._world
        box.waits = (waker, requests)
        # This check follows the assignment of the waker, so whoever completes a request later sees the waker and no wake-up is lost.
        if not world.aborted and not any(request.done for request in requests):
            waker.acquire()
        box.waits = None
        if not any(request.done for request in requests):
            raise Aborted("another rank failed")


def _wake(waker: Any) -> None:
    # Another request of the same wait may have released it already.
    with suppress(RuntimeError):
        waker.release()


def _deliver(message: ThreadRequest, receive: ThreadRequest) -> None:
    """Copy a message into its receive and complete both. A short message that had to wait was copied aside and is complete already."""
    data = message.data
    if data.nbytes > receive.data.nbytes:
        receive.error = Truncated(data.nbytes, receive.data.nbytes)
    else:
        receive.data[: data.nbytes] = data
    receive.status = Status(message.comm.rank, message.tag, data.nbytes)
    receive.complete()
    if not message.done:
        message.complete()


class ThreadRanks(Communicator):
    """Ranks that are threads of one process."""

    _transfers: ClassVar[str] = "armillary.comm.threads.transfers:ThreadTransfers"

    def __init__(self, world: World, members: Sequence[int], rank: int, name: Any, tally: Tally, seed: int) -> None:
        super().__init__(rank, [0] * len(members), tally, seed)
        self._world = world
        #: The rank in the world of each rank of this communicator.
        self._members = tuple(members)
        self._name = name
        self._context = world.context(name)
        self._box = world.boxes[self._members[rank]]
        self._windows = 0

    def isend(self, buf: Buffer, dest: int, tag: int = 0) -> Request:
        check_tag(tag)
        data = outgoing(buf)
        counters = self._tally.now
        counters.calls += 1
        if dest != self.rank and dest != PROC_NULL:
            counters.messages += 1
            counters.bytes += data.nbytes
        if not 0 <= dest < self.size:
            check_rank(dest, self.size, "dest")
            return Done()
        return self._start_send(data, dest, tag)

    def _start_send(self, data: Bytes, dest: int, tag: int) -> ThreadRequest:
        if self._world.aborted:
            raise Aborted("another rank failed")
        request = ThreadRequest(self, False, dest, tag, data)
        request.status = Status(self.rank, tag, data.nbytes)
        box = self._world.boxes[self._members[dest]]
        with box.lock:
            receive = box.matcher.arrive(self._context, self.rank, tag, request)
            if receive is None and data.nbytes <= EAGER:
                request.data = data.copy()
                request.done = True
        if receive is not None:
            _deliver(request, receive)
        return request

    def irecv(self, buf: Buffer, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        check_tag(tag, wild=True)
        self._tally.now.calls += 1
        data, after = incoming(buf)
        if not 0 <= source < self.size:
            check_rank(source, self.size, "source", wild=True)
            if source == PROC_NULL:
                return Done()
        if self._world.aborted:
            raise Aborted("another rank failed")
        request = ThreadRequest(self, True, source, tag, data)
        request.after = after
        box = self._box
        with box.lock:
            message = box.matcher.post(self._context, source, tag, request)
        if message is not None:
            _deliver(message, request)
        return request

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status | None:
        check_tag(tag, wild=True)
        check_rank(source, self.size, "source", wild=True)
        self._world.check()
        with self._box.lock:
            message = self._box.matcher.peek(self._context, source, tag)
        return None if message is None else Status(message.comm.rank, message.tag, message.data.nbytes)

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status:
        # A receive would take the message away, so this looks again and again.
        pause = threading.Event()
        while True:
            found = self.iprobe(source, tag)
            if found is not None:
                return found
            pause.wait(2e-5)

    def window(self, nbytes: int, dtype: Any = np.uint8) -> Window:
        from armillary.comm.threads.window import ThreadWindow

        count, kind = elements(nbytes, dtype)
        self._windows += 1
        return ThreadWindow(self, np.zeros(count, kind), self._windows)

    def _make_shadow(self) -> ThreadRanks:
        return ThreadRanks(self._world, self._members, self.rank, (self._name, "shadow"), Tally(), self._seed)

    def _sub(self, members: Sequence[int], name: tuple[Any, ...]) -> ThreadRanks:
        world_ranks = [self._members[i] for i in members]
        return ThreadRanks(self._world, world_ranks, list(members).index(self.rank), (self._name, *name), self._tally, self._seed)
