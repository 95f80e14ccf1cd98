"""Ranks as threads of this process.

A message is copied once, by whoever comes second, without the GIL held where it is large. Short ones (up to `EAGER` bytes) do not wait
for their receiver: they are copied aside. The rank that fails first ends the run: the others get `Aborted` at their next call, or where
they wait.
"""

from __future__ import annotations

import threading
import traceback
from _thread import allocate_lock
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import numpy as np

from armillary.comm.buffers import Array, Buffer, Bytes, incoming, outgoing, unpack
from armillary.comm.communicator import Communicator
from armillary.comm.counters import Tally
from armillary.comm.failures import Aborted, Deadlock, Killed, RankFailed, Truncated
from armillary.comm.matching import Matcher
from armillary.comm.message import ANY_SOURCE, ANY_TAG, PROC_NULL, Status, check_rank, check_tag
from armillary.comm.operations import SUM, Op
from armillary.comm.requests import Done, Request
from armillary.comm.result import Ran
from armillary.comm.windows import Window, elements

#: Longer messages wait for their receiver.
EAGER = 16384
#: Seconds between two looks for a deadlock.
_LOOK = 0.25


class World:
    """What the ranks of one run share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.boxes = [Box() for _ in range(size)]
        #: Numbers of the communicators' contexts, by name.
        self._contexts: dict[Any, int] = {}
        #: What collective calls leave for each other: (context, number, rank) to anything.
        self.shared: dict[Any, Any] = {}
        self.lock = allocate_lock()
        self.aborted = False
        #: The first failure: rank, exception, traceback.
        self.failure: tuple[int, BaseException, str] | None = None

    def context(self, name: Any) -> int:
        """A small number for a name, the same for every rank."""
        with self.lock:
            return self._contexts.setdefault(name, len(self._contexts))

    def abort(self) -> None:
        """Wake every rank that waits; it will find `aborted`."""
        self.aborted = True
        for box in self.boxes:
            waits = box.waits
            if waits is not None:
                _wake(waits[0])

    def deadlock(self) -> tuple[Any, ...] | None:
        """What every unfinished rank waits for, when all of them wait and nothing that they wait for has happened."""
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
        """What each rank waits for, in words; at most 20."""
        lines = [f"rank {rank}: {box.waits[1][0].what}" for rank, box in enumerate(self.boxes) if not box.ended and box.waits is not None]
        return "; ".join(lines[:20]) + (f"; and {len(lines) - 20} more" if len(lines) > 20 else "")


class Box:
    """What one rank receives, and what it waits for."""

    __slots__ = ("ended", "lock", "matcher", "waits")

    def __init__(self) -> None:
        self.lock = allocate_lock()
        self.matcher = Matcher()
        #: The lock that wakes it and the requests that it waits for; None while it runs.
        self.waits: tuple[Any, Sequence[ThreadRequest]] | None = None
        self.ended = False


class ThreadRequest(Request):
    """A send or receive between threads; done once, by either side."""

    __slots__ = ("after", "comm", "data", "done", "error", "peer", "received", "status", "tag", "waker")

    def __init__(self, comm: ThreadRanks, received: bool, peer: int, tag: int, data: Bytes) -> None:
        self.comm = comm
        self.received = received
        self.peer = peer
        self.tag = tag
        self.data = data
        self.done = False
        self.error: Exception | None = None
        self.status: Status | None = None
        #: What to unpack when a receive is done.
        self.after: Any = None
        #: The lock on which somebody waits for it.
        self.waker: Any = None

    @property
    def what(self) -> str:
        """The operation in words."""
        if self.received:
            source = "ANY_SOURCE" if self.peer == ANY_SOURCE else self.peer
            return f"recv(source={source}, tag={'ANY_TAG' if self.tag == ANY_TAG else self.tag})"
        return f"send(dest={self.peer}, tag={self.tag}, {self.data.nbytes} bytes)"

    def complete(self) -> None:
        self.done = True
        waker = self.waker
        if waker is not None:
            _wake(waker)

    def wait(self) -> Status:
        if not self.done:
            _block(self.comm, (self,))
        return self._end()

    def test(self) -> Status | None:
        if self.comm._world.aborted:
            raise Aborted("another rank failed")
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
            self.status = Status(PROC_NULL, ANY_TAG, 0)
            self.after = None
            self.complete()
        return taken

    @classmethod
    def wait_any(cls, requests: Sequence[Any]) -> tuple[int, Status]:
        _block(requests[0].comm, requests)
        i = next(i for i, request in enumerate(requests) if request.done)
        return i, requests[i]._end()

    def _end(self) -> Status:
        if self.error is not None:
            raise self.error
        assert self.status is not None
        if self.after is not None:
            after, self.after = self.after, None
            unpack(self.data, self.status.nbytes, after)
        return self.status


def _wake(waker: Any) -> None:
    # It was released already when another request of the same wait was faster.
    with suppress(RuntimeError):
        waker.release()


def _block(comm: ThreadRanks, requests: Sequence[ThreadRequest]) -> None:
    """Wait until one of the requests is done, or the run is aborted."""
    waker = allocate_lock()
    waker.acquire()
    for request in requests:
        request.waker = waker
    box = comm._box
    box.waits = (waker, requests)
    # Looked at after the waker is in place: whoever completes one later sees the waker, so no wake-up is lost.
    if not comm._world.aborted and not any(request.done for request in requests):
        waker.acquire()
    box.waits = None
    if not any(request.done for request in requests):
        raise Aborted("another rank failed")


def _deliver(message: ThreadRequest, receive: ThreadRequest) -> None:
    """Copy a message where it was to go; both sides are done. A short message that waited is its own copy and done before."""
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

    def __init__(self, world: World, members: Sequence[int], rank: int, name: Any, tally: Tally, seed: int) -> None:
        super().__init__(rank, [0] * len(members), tally, seed)
        self._world = world
        #: The rank in the world of each rank here.
        self._members = tuple(members)
        self._name = name
        self._context = world.context(name)
        self._box = world.boxes[self._members[rank]]
        self._shadow_ranks: ThreadRanks | None = None
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
        if self._world.aborted:
            raise Aborted("another rank failed")
        with self._box.lock:
            message = self._box.matcher.peek(self._context, source, tag)
        return None if message is None else Status(message.comm.rank, message.tag, message.data.nbytes)

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status:
        # A receive of no bytes into a private place would take the message away, so look again whenever something may have come.
        pause = threading.Event()
        while True:
            found = self.iprobe(source, tag)
            if found is not None:
                return found
            pause.wait(2e-5)

    def kill(self, rank: int) -> None:
        if rank == self.rank:
            raise Killed(f"rank {rank} was killed")

    def window(self, nbytes: int, dtype: Any = np.uint8) -> Window:
        count, kind = elements(nbytes, dtype)
        self._windows += 1
        return ThreadWindow(self, np.zeros(count, kind), self._windows)

    @property
    def _shadow(self) -> ThreadRanks:
        if self._shadow_ranks is None:
            shadow = ThreadRanks(self._world, self._members, self.rank, (self._name, "shadow"), Tally(), self._seed)
            shadow._shadow_ranks = shadow
            self._shadow_ranks = shadow
        return self._shadow_ranks

    def _sub(self, members: Sequence[int], name: tuple[Any, ...]) -> ThreadRanks:
        world_ranks = [self._members[i] for i in members]
        return ThreadRanks(self._world, world_ranks, list(members).index(self.rank), (self._name, *name), self._tally, self._seed)


class ThreadWindow(Window):
    """Memory that the threads share anyway, with a lock for each rank's part."""

    def __init__(self, comm: ThreadRanks, local: Array, number: int) -> None:
        self._comm = comm
        self.local = local
        self._key = (comm._context, number)
        self._world = comm._world
        self._world.shared[(*self._key, comm.rank)] = (local, allocate_lock(), allocate_lock())
        comm._shadow.barrier()
        self._parts = [self._world.shared[(*self._key, rank)] for rank in range(comm.size)]

    def put(self, data: Buffer, rank: int, start: int = 0) -> None:
        array = self._checked(data, rank, start, self._comm.size)
        self._sent(rank, array.nbytes)
        memory, atomic, _ = self._parts[rank]
        with atomic:
            memory[start : start + array.size] = array

    def get(self, data: Buffer, rank: int, start: int = 0) -> Buffer:
        array = self._checked(data, rank, start, self._comm.size, writable=True)
        self._sent(rank, 0)
        memory, atomic, _ = self._parts[rank]
        with atomic:
            array[...] = memory[start : start + array.size]
        return data

    def accumulate(self, data: Buffer, rank: int, start: int = 0, op: Op = SUM) -> None:
        array = self._checked(data, rank, start, self._comm.size)
        self._sent(rank, array.nbytes)
        memory, atomic, _ = self._parts[rank]
        part = memory[start : start + array.size]
        with atomic:
            part[...] = op(part, array)

    def flush(self, rank: int) -> None:
        if self._world.aborted:
            raise Aborted("another rank failed")

    def fence(self) -> None:
        self._comm._shadow.barrier()

    def lock(self, rank: int) -> AbstractContextManager[None]:
        return self._held(self._parts[rank][2])

    @contextmanager
    def _held(self, lock: Any) -> Iterator[None]:
        while not lock.acquire(timeout=0.1):
            if self._world.aborted:
                raise Aborted("another rank failed")
        try:
            yield
        finally:
            lock.release()

    def view(self, rank: int) -> Array | None:
        return self._parts[rank][0]

    def close(self) -> None:
        self.fence()
        self._world.shared.pop((*self._key, self._comm.rank), None)

    def _sent(self, rank: int, nbytes: int) -> None:
        counters = self._comm._tally.now
        counters.calls += 1
        if rank != self._comm.rank:
            counters.messages += 1
            counters.bytes += nbytes


def run_threads(
    program: Callable[..., Any], args: Sequence[Any], named: dict[str, Any], ranks: int, seed: int, choice: dict[str, Any]
) -> Ran:
    """Run the program on every rank: what each returned, the counters of each, and messages that nobody received."""
    world = World(ranks)
    values: list[Any] = [None] * ranks
    tallies = [Tally() for _ in range(ranks)]
    ended = threading.Semaphore(0)

    def body(rank: int) -> None:
        try:
            comm = ThreadRanks(world, range(ranks), rank, "world", tallies[rank], seed)
            comm.choose(**choice)
            values[rank] = program(comm, *args, **named)
        except BaseException as error:
            with world.lock:
                if world.failure is None and not isinstance(error, Aborted):
                    world.failure = (rank, error, traceback.format_exc())
            world.abort()
        finally:
            world.boxes[rank].ended = True
            ended.release()

    threads = [threading.Thread(target=body, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    try:
        stuck = _watch(world, ended, ranks)
    except BaseException:
        world.abort()
        raise
    for thread in threads:
        thread.join()
    if stuck is not None:
        raise Deadlock(stuck)
    if world.failure is not None:
        rank, error, trace = world.failure
        raise RankFailed(rank, error, trace) from error
    left = [
        f"from rank {m.comm.rank} to rank {m.peer}, tag {m.tag}, {m.data.nbytes} bytes"
        for box in world.boxes
        for m in box.matcher.unreceived()
    ]
    return Ran(values, [tally.phases for tally in tallies], left)


def _watch(world: World, ended: threading.Semaphore, ranks: int) -> str | None:
    """Wait for the ranks to end; what they wait for when they wait for each other."""
    before: tuple[Any, ...] | None = None
    missing = ranks
    while missing:
        if ended.acquire(timeout=_LOOK):
            missing -= 1
            continue
        now = world.deadlock()
        if now is not None and before is not None and len(now) == len(before) and all(a is b for a, b in zip(now, before)):
            said = world.pending()
            world.abort()
            return said
        before = now
    return None
