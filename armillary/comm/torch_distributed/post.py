"""The post: messages between processes with MPI's matching, over the plain sends of a torch.distributed group.

Gloo matches a send with a receive of the same length, source and tag. Here every message begins with a *frame* of fixed length, which any
process may send at any time and for which a receive is always posted.

    up to SHORT bytes    the frame holds the message
    up to EAGER bytes    the message follows, and whoever takes the frame takes it in at once, so the sender does not wait for the receive
    longer               the message follows straight into the buffer of its receive

The frames of one process arrive in the order in which they were sent, so messages do not overtake each other, whatever their lengths.

One thread at a time takes the frames of a process. It is the thread that waits for a message of that process, if nothing else is under
way; this spares the message a change of threads. It is a thread of its own, the postman of that process, while nonblocking transfers are
under way, so that they progress whatever the program does.

A long message that has the same envelope and length as the one before is expected: a receive that fits it exactly is given to Gloo before
the frame arrives, so that the message does not have to ask for it.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch

from armillary.comm.failures import Aborted, CommError, Truncated
from armillary.comm.messages.buffers import Array, Bytes
from armillary.comm.messages.envelope import NOTHING, Status
from armillary.comm.messages.layout import Layout
from armillary.comm.messages.matching import Matcher
from armillary.comm.messages.requests import Matched
from armillary.comm.torch_distributed.frames import ARRIVED, EAGER, END, FRAME, MESSAGE, REPORTED, ROUND, SAME, SHORT, Frame, decode, encode
from armillary.comm.torch_distributed.library import dist, lost

#: A timeout longer than any program waits. A rank that has gone is noticed by its connection.
FOREVER = timedelta(days=365)
#: The bytes of the pieces in which a long message travels, and so of the memory into which one without enough room is thrown away.
PIECE = 1 << 26
#: The tag of frames, and the first tag of messages that follow a frame.
_FRAMES, _FIRST = 0x7A000000, 0x10000000
#: The number of transfers that may be under way before the sender waits for the oldest.
_KEPT = 256
#: The receives of frames that are posted ahead for each process.
_AHEAD = 4
#: The number of equal messages after which the next one is expected, and of wrong expectations after which there are no more.
_EQUAL, _WRONG = 2, 4


def context(name: Any) -> int:
    """Return a number for the name of a communicator, the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(name).encode(), digest_size=8).digest(), "little")


def _payload_tag(number: int, same: bool) -> int:
    return _FIRST + 2 * number + same


class _Pieces:
    """The transfers of the pieces of one message."""

    __slots__ = ("_works",)

    def __init__(self, works: Sequence[Any]) -> None:
        self._works = works

    def wait(self) -> None:
        """Wait until every piece is done."""
        for work in self._works:
            work.wait()


def _in_pieces(transfer: Callable[[Any], Any], data: Bytes) -> Any:
    """Begin the transfer of each piece of a message; Gloo keeps the order of those with one tag."""
    whole = torch.from_numpy(data)
    if data.nbytes <= PIECE:
        return transfer(whole)
    pieces: Any = whole.split(PIECE)  # type: ignore[no-untyped-call]
    return _Pieces([transfer(piece) for piece in pieces])


class Message:
    """What a frame announced: the bytes of a message, or where to ask for them."""

    __slots__ = ("data", "flags", "inbox", "nbytes", "number", "request", "source", "tag")

    def __init__(
        self, source: int, tag: int, nbytes: int, data: Bytes | None, inbox: _Inbox | None = None, number: int = 0, flags: int = 0
    ) -> None:
        #: The sender's rank in the communicator.
        self.source = source
        self.tag = tag
        self.nbytes = nbytes
        self.data = data
        #: Where the message came from; None if the process sent it to itself.
        self.inbox = inbox
        self.number = number
        self.flags = flags
        #: The send that waits for this message, if the process sent it to itself.
        self.request: PostRequest | None = None


class PostRequest(Matched):
    """A send or receive of this process."""

    __slots__ = ("inbox", "key", "post", "under_way", "wild")

    def __init__(self, post: Post, data: Bytes, key: tuple[int, int, int] | None = None) -> None:
        super().__init__(data)
        self.post = post
        #: The (context, source, tag) of a receive, or None for a send.
        self.key = key
        #: Whether the request waits for a message; the inbox whose frames complete it; and whether those of any inbox may.
        self.under_way = False
        self.inbox: _Inbox | None = None
        self.wild = False

    def test(self) -> Status | None:
        if not self.done:
            self.post.check()
            return None
        return self._end()

    def cancel(self) -> bool:
        with self.post.changed:
            if self.done or self.key is None or not self.post.matcher.withdraw(*self.key, self):
                return False
            self.after = None
            self.status = NOTHING
            self.post.finish(self)
        return True

    def _until(self, requests: Sequence[Any]) -> None:
        post = self.post
        if len(requests) == 1 and post.lead(self):
            return
        with post.changed:
            post.call_postmen()
            while not any(request.done for request in requests):
                post.check()
                post.sleep()


class _Inbox:
    """The frames of one other process of the group."""

    __slots__ = ("dropped", "ended", "equal", "expected", "last", "place", "posted", "postman", "probed", "taken", "waiting", "wanted")

    def __init__(self, place: int) -> None:
        #: The place of that process in the group.
        self.place = place
        #: The posted receives of the next frames, with their memory.
        self.posted: deque[tuple[Any, Bytes]] = deque()
        #: Whether a thread waits for the next frame.
        self.taken = False
        #: Whether that process has said that it sends no more.
        self.ended = False
        #: The requests that only frames of this process complete, and whether the program has probed for its messages.
        self.waiting = 0
        self.probed = False
        self.postman: threading.Thread | None = None
        self.wanted = threading.Event()
        #: The envelope and number of the last message, and how many equal ones have come in a row.
        self.last: tuple[tuple[int, int, int, int], int] | None = None
        self.equal = 0
        #: The (number, receive, transfer) of an expected message.
        self.expected: tuple[int, PostRequest, Any] | None = None
        #: Expectations that did not come true. Gloo cannot withdraw them, so their memory is kept.
        self.dropped: list[Any] = []


class _Outbox:
    """What was sent to one other process of the group."""

    __slots__ = ("last", "lock", "number")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.number = 0
        self.last: tuple[int, int, int, int] | None = None


class Post:
    """The messages of one process of a group, for all communicators of its ranks."""

    def __init__(self, native: Any) -> None:
        self.native = native
        self.place: int = native.rank()
        self.size: int = native.size()
        self.matcher = Matcher()
        #: Held to look at the matcher or to complete a request; notified when a message arrived or a request was completed.
        self.changed = threading.Condition()
        #: The number of threads that wait for `changed`.
        self._asleep = 0
        self._broken = ""
        self._closed = False
        self._inboxes: list[_Inbox | None] = [None] * self.size
        self._outboxes = [_Outbox() for _ in range(self.size)]
        #: The requests under way, and those of them that a frame of any process may complete.
        self._under_way = 0
        self._wild = 0
        #: Sends that wait for the report that their message has arrived, by (receiver, number).
        self._long: dict[tuple[int, int], tuple[PostRequest, Any]] = {}
        #: The transfers of frames and eager messages that are under way, with the memory that they use.
        self._flying: deque[tuple[Any, Any]] = deque()
        #: Groups of the library, by the places of their ranks.
        self._groups: dict[tuple[int, ...], Any] = {tuple(range(self.size)): native}

    def group(self, places: Sequence[int]) -> Any:
        """Return the library's group of these places, in this order. It is made once, when all of them ask."""
        key = tuple(places)
        if key not in self._groups:
            # torch's `new_group` orders the ranks itself, and all its ranks must have made the same number of groups before.
            store = dist.PrefixStore(f"armillary {key}", dist.distributed_c10d._get_process_group_store(self.native))
            try:
                self._groups[key] = dist.ProcessGroupGloo(store, key.index(self.place), len(key), FOREVER)
            except RuntimeError as error:
                raise lost(error) from error
        return self._groups[key]

    # What communicators call

    def send(self, context: int, source: int, dest: int, tag: int, data: Bytes) -> PostRequest:
        """Start a message from rank `source` of a communicator to the process at place `dest`."""
        request = PostRequest(self, data)
        request.status = Status(source, tag, data.nbytes)
        if dest == self.place:
            self.check()
            self._to_itself(context, source, tag, request)
            return request
        if data.nbytes <= EAGER:
            self.send_now(context, source, dest, tag, data)
            request.done = True
            return request
        self.check()
        inbox = self._inbox(dest)
        with self._outboxes[dest].lock:
            number, flags = self._numbered(dest, context, source, tag, data.nbytes)
            # The request is registered before the frame leaves, because the report of its arrival may come at once.
            with self.changed:
                self._begin(request, inbox)
                self._long[dest, number] = (request, None)
            payload = self._with_frame(dest, (MESSAGE, flags | REPORTED, context, source, tag, data.nbytes, number), data)
            self._long[dest, number] = (request, payload)
        with self.changed:
            self._call(inbox)
        return request

    def send_now(self, context: int, source: int, dest: int, tag: int, data: Bytes) -> None:
        """Send to another process, and return when the buffer may be used again."""
        self.check()
        nbytes = data.nbytes
        outbox = self._outboxes[dest]
        if nbytes <= SHORT:
            with outbox.lock:
                outbox.last = None
                self._frame(dest, (MESSAGE, 0, context, source, tag, nbytes, 0), data)
        else:
            kept = data.copy() if nbytes <= EAGER else data
            with outbox.lock:
                number, flags = self._numbered(dest, context, source, tag, nbytes)
                payload = self._with_frame(dest, (MESSAGE, flags, context, source, tag, nbytes, number), kept)
            if nbytes > EAGER:
                self._wait(payload)
            else:
                self._flying.append((payload, kept))
        while len(self._flying) > _KEPT:
            self._wait(self._flying.popleft()[0])

    def receive(
        self, context: int, source: int, tag: int, data: Bytes, after: tuple[Array, Layout] | None, place: int, postman: bool = True
    ) -> PostRequest:
        """Start a receive from rank `source`, which is at `place` of the group, or from any rank if `place` is negative.

        Without a `postman` the caller waits for it at once.
        """
        self.check()
        request = PostRequest(self, data, (context, source, tag))
        request.after = after
        inbox = None if place in (-1, self.place) else self._inbox(place)
        if place < 0:
            self._all_inboxes()
        with self.changed:
            message = self.matcher.post(context, source, tag, request)
            if message is None:
                self._begin(request, inbox, wild=place < 0)
        if message is not None:
            self._deliver(message, request)
        elif postman:
            with self.changed:
                self.call_postmen()
        return request

    def peek(self, context: int, source: int, tag: int, place: int) -> Status | None:
        """Return the status of the message that such a receive would get now, or None."""
        self.check()
        with self.changed:
            for inbox in self._all_inboxes() if place < 0 else [] if place == self.place else [self._inbox(place)]:
                inbox.probed = True
                self._call(inbox)
            message = self.matcher.peek(context, source, tag)
        return None if message is None else Status(message.source, message.tag, message.nbytes)

    def until_peek(self, context: int, source: int, tag: int, place: int) -> Status:
        """Wait for the message that such a receive would get, and return its status."""
        with self.changed:
            while True:
                found = self.peek(context, source, tag, place)
                if found is not None:
                    return found
                self.sleep()

    def sleep(self) -> None:
        """Wait until something has changed; the caller holds `changed`."""
        self._asleep += 1
        try:
            self.changed.wait()
        finally:
            self._asleep -= 1

    def _tell(self) -> None:
        if self._asleep:
            self.changed.notify_all()

    def check(self) -> None:
        """Raise `Aborted` if a process of the group has gone."""
        if self._broken:
            raise Aborted(f"another rank failed ({self._broken})")

    def close(self) -> None:
        """Take the frames that are left, and end the postmen. Every process calls it."""
        inboxes = self._all_inboxes()
        for inbox in inboxes:
            self._frame(inbox.place, (END, 0, 0, 0, 0, 0, 0))
        for inbox in inboxes:
            while self._takes(inbox, lambda: True, patient=True):
                self._take(inbox)
        with self.changed:
            self._closed = True
        for inbox in inboxes:
            inbox.wanted.set()
            if inbox.postman is not None:
                inbox.postman.join()
        self.check()

    def abandon(self) -> None:
        """Let go of everything that holds the library's groups, whose connections close when nothing does."""
        with self.changed:
            self._broken = self._broken or "its ranks were given up"
            self._tell()
        for inbox in self._inboxes:
            if inbox is not None:
                inbox.wanted.set()
                inbox.posted.clear()
                inbox.dropped.clear()
                inbox.expected = None
        self._flying.clear()
        self._long.clear()
        self._groups.clear()
        self.native = None

    # Requests under way

    def _begin(self, request: PostRequest, inbox: _Inbox | None, wild: bool = False) -> None:
        request.under_way, request.inbox, request.wild = True, inbox, wild
        self._under_way += 1
        self._wild += wild
        if inbox is not None:
            inbox.waiting += 1

    def finish(self, request: PostRequest) -> None:
        """Complete a request; the caller holds `changed`."""
        if request.under_way:
            request.under_way = False
            self._under_way -= 1
            self._wild -= request.wild
            if request.inbox is not None:
                request.inbox.waiting -= 1
        request.done = True
        self._tell()

    def _complete(self, request: PostRequest) -> None:
        with self.changed:
            self.finish(request)

    # Who takes the frames of a process

    def lead(self, request: PostRequest) -> bool:
        """Take frames on the calling thread until the request is done. Returns False if this thread must not."""
        inbox = request.inbox
        if inbox is None or not self._takes(inbox, lambda: not request.done and self._under_way == 1):
            return False
        self._take(inbox, request)
        if not request.done:
            raise Aborted(f"the process at place {inbox.place} of the group sends no more")
        return True

    def _takes(self, inbox: _Inbox, wanted: Callable[[], bool], patient: bool = False) -> bool:
        """Let the calling thread take the frames of a process, if nobody does and there is something to take them for.

        With `patient` it waits until nobody does.
        """
        with self.changed:
            while patient and inbox.taken and not self._broken:
                self.sleep()
            if inbox.taken or inbox.ended or self._broken or not wanted():
                return False
            inbox.taken = True
        return True

    def _take(self, inbox: _Inbox, request: PostRequest | None = None) -> None:
        """Take one frame, or frames until the request is done, and leave the rest to a postman if somebody waits for it."""
        try:
            if request is not None and inbox.expected is None:
                self._expect(inbox, request)
            self._take_frame(inbox)
            while request is not None and not request.done and not inbox.ended:
                self._take_frame(inbox)
        except Exception as error:  # PyTorch raises various errors when a process has gone.
            with self.changed:
                self._broken = self._broken or str(error).partition("\n")[0] or type(error).__name__
        finally:
            with self.changed:
                inbox.taken = False
                self._call(inbox)
                self._tell()
        self.check()

    def call_postmen(self) -> None:
        """Let postmen take the frames for which nobody waits; the caller holds `changed`."""
        for inbox in self._inboxes:
            if inbox is not None:
                self._call(inbox)

    def _call(self, inbox: _Inbox) -> None:
        if inbox.taken or inbox.ended or not self._needed(inbox):
            return
        if inbox.postman is None:
            inbox.postman = threading.Thread(target=self._deliver_frames, args=(inbox,), name="postman", daemon=True)
            inbox.postman.start()
        inbox.wanted.set()

    def _needed(self, inbox: _Inbox) -> bool:
        return bool(inbox.waiting or self._wild or inbox.probed)

    def _deliver_frames(self, inbox: _Inbox) -> None:
        while not self._closed and not self._broken and not inbox.ended:
            inbox.wanted.wait()
            inbox.wanted.clear()
            while self._takes(inbox, lambda: self._needed(inbox)):
                try:
                    self._take(inbox)
                except Aborted:
                    return

    # Frames

    def _inbox(self, place: int) -> _Inbox:
        found = self._inboxes[place]
        if found is None:
            with self.changed:
                found = self._inboxes[place]
                if found is None:
                    found = _Inbox(place)
                    for _ in range(_AHEAD):
                        self._listen(found)
                    self._inboxes[place] = found
        return found

    def _all_inboxes(self) -> list[_Inbox]:
        return [self._inbox(place) for place in range(self.size) if place != self.place]

    def _listen(self, inbox: _Inbox) -> None:
        frame = np.empty(FRAME, np.uint8)
        try:
            inbox.posted.append((self.native.recv([torch.from_numpy(frame)], inbox.place, _FRAMES), frame))
        except RuntimeError as error:
            raise lost(error) from error

    def _take_frame(self, inbox: _Inbox) -> None:
        """Wait for the next frame of a process, and do what it says."""
        work, room = inbox.posted[0]
        work.wait()
        inbox.posted.popleft()
        frame, data = decode(room, self.size)
        kind, flags, context, source, tag, nbytes, number = frame
        if kind == END:
            inbox.ended = True
            return
        self._listen(inbox)
        if kind == ARRIVED:
            self._arrived(inbox, number)
            return
        if SHORT < nbytes <= EAGER:
            data = np.empty(nbytes, np.uint8)
            self._into(data, inbox, number, bool(flags & SAME)).wait()
        self._note(inbox, flags, ((context, source, tag, nbytes), number))
        message = Message(source, tag, nbytes, data, inbox, number, flags)
        with self.changed:
            astray = inbox.expected is not None and inbox.expected[1].done
            receive = None if astray else self._match(context, message)
        if astray:
            self._keep_expected(message, inbox)
            with self.changed:
                receive = self._match(context, message)
        if receive is not None:
            self._deliver(message, receive)

    def _match(self, context: int, message: Message) -> PostRequest | None:
        found: PostRequest | None = self.matcher.arrive(context, message.source, message.tag, message)
        if found is None:
            self._tell()
        return found

    def _arrived(self, inbox: _Inbox, number: int) -> None:
        request, payload = self._long.pop((inbox.place, number), (None, None))
        if request is None:
            raise CommError(f"frame: found the report of message {number}, which was not sent; expected one that was")
        if payload is not None:
            payload.wait()
        self._complete(request)

    def _deliver(self, message: Message, receive: PostRequest) -> None:
        """Put a message into its receive, on whichever thread matched the two."""
        room, nbytes = receive.data, message.nbytes
        if nbytes > room.nbytes:
            receive.error = Truncated(nbytes, room.nbytes)
        if message.data is None:
            self._fetch(message, receive)
        elif nbytes <= room.nbytes:
            room[:nbytes] = message.data
        receive.status = Status(message.source, message.tag, nbytes)
        self._complete(receive)
        if message.request is not None and not message.request.done:
            self._complete(message.request)

    def _fetch(self, message: Message, receive: PostRequest) -> None:
        """Receive a long message into the buffer of its receive."""
        inbox, nbytes, room = message.inbox, message.nbytes, receive.data
        assert inbox is not None
        expected = inbox.expected
        if expected is not None and expected[0] == message.number and expected[1] is receive:
            inbox.expected = None
            self._wait(expected[2])
        else:
            same = bool(message.flags & SAME)
            if nbytes <= room.nbytes:
                self._wait(self._into(room[:nbytes], inbox, message.number, same))
            else:
                self._throw_away(nbytes, inbox, message.number, same)
        self._report(message)

    def _throw_away(self, nbytes: int, inbox: _Inbox, number: int, same: bool) -> None:
        room = np.empty(min(nbytes, PIECE), np.uint8)
        for start in range(0, nbytes, PIECE):
            self._wait(self._into(room[: nbytes - start], inbox, number, same))

    def _report(self, message: Message) -> None:
        if message.flags & REPORTED and message.inbox is not None:
            self._frame(message.inbox.place, (ARRIVED, 0, 0, 0, 0, 0, message.number))

    def _into(self, target: Bytes, inbox: _Inbox, number: int, same: bool) -> Any:
        tag = _payload_tag(number, same)
        return _in_pieces(lambda piece: self.native.recv([piece], inbox.place, tag), target)

    # Messages that are expected

    def _expect(self, inbox: _Inbox, request: PostRequest) -> None:
        """Post the receive of the next message if it will probably be equal to the last one; the caller takes the frames of the process.

        Nothing else can match that message: this is the only receive, and `SAME` says that no message came between the two.
        """
        if inbox.last is None or inbox.equal < _EQUAL or len(inbox.dropped) >= _WRONG:
            return
        envelope, number = inbox.last
        nbytes = envelope[3]
        if nbytes > EAGER and request.key == envelope[:3] and nbytes <= request.data.nbytes:
            number = number % ROUND + 1
            inbox.expected = (number, request, self._into(request.data[:nbytes], inbox, number, True))

    def _note(self, inbox: _Inbox, flags: int, last: tuple[tuple[int, int, int, int], int]) -> None:
        inbox.last = last
        if flags & SAME:
            inbox.equal += 1
            return
        inbox.equal = 0
        if inbox.expected is not None:
            inbox.dropped.append(inbox.expected)
            inbox.expected = None

    def _keep_expected(self, message: Message, inbox: _Inbox) -> None:
        """Take in a message that went into the buffer of a receive which was cancelled meanwhile."""
        assert inbox.expected is not None
        (_, request, work), inbox.expected = inbox.expected, None
        self._wait(work)
        message.data = request.data[: message.nbytes].copy()
        self._report(message)

    def _to_itself(self, context: int, source: int, tag: int, request: PostRequest) -> None:
        message = Message(source, tag, request.data.nbytes, request.data)
        message.request = request
        with self.changed:
            receive = self.matcher.arrive(context, source, tag, message)
            if receive is None:
                if message.nbytes <= EAGER:
                    message.data = request.data.copy()
                    request.done = True
                self._tell()
        if receive is not None:
            self._deliver(message, receive)

    # The library's sends

    def _numbered(self, dest: int, context: int, source: int, tag: int, nbytes: int) -> tuple[int, int]:
        """Return the number and the flags of the next message to a process; the caller holds its outbox."""
        outbox = self._outboxes[dest]
        outbox.number = outbox.number % ROUND + 1
        envelope = (context, source, tag, nbytes)
        same = outbox.last == envelope
        outbox.last = envelope
        return outbox.number, SAME if same else 0

    def _with_frame(self, dest: int, frame: Frame, data: Bytes) -> Any:
        self._frame(dest, frame)
        return self._carry(data, dest, _payload_tag(frame[-1], bool(frame[1] & SAME)))

    def _frame(self, dest: int, frame: Frame, data: Bytes | None = None) -> None:
        made = encode(frame, data)
        self._flying.append((self._carry(made, dest, _FRAMES), made))

    def _carry(self, data: Bytes, dest: int, tag: int) -> Any:
        if not data.flags.writeable:
            # PyTorch has no read-only memory and warns about it.
            data = data.copy()
        try:
            return _in_pieces(lambda piece: self.native.send([piece], dest, tag), data)
        except RuntimeError as error:
            raise lost(error) from error

    def _wait(self, work: Any) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            raise lost(error) from error
