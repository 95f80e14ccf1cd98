"""The post: messages between processes with MPI's matching, over the plain sends of a torch.distributed group.

Gloo matches a send with a receive of the same length, source and tag. Here every message begins with a *frame* of fixed length, which any
process may send at any time. A thread of each process, the postman, receives frames from every process and matches what they announce.

    up to SHORT bytes    the frame holds the message
    up to EAGER bytes    the message follows, and the postman takes it in at once, so the sender does not wait for the receive
    longer               the message follows straight into the buffer of its receive, and a frame back says that it has arrived

The frames of one process arrive in the order in which they were sent, so messages do not overtake each other, whatever their lengths.
"""

from __future__ import annotations

import hashlib
import struct
import threading
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch

from armillary.comm.failures import Aborted, Truncated
from armillary.comm.messages.buffers import Array, Bytes
from armillary.comm.messages.envelope import NOTHING, Status
from armillary.comm.messages.layout import Layout
from armillary.comm.messages.matching import Matcher
from armillary.comm.messages.requests import Matched
from armillary.comm.torch_distributed.library import dist, lost

#: A timeout longer than any program waits. A rank that has gone is noticed by its connection.
FOREVER = timedelta(days=365)
#: The bytes of a frame, of the longest message inside one, and of the longest message that does not wait for its receiver.
FRAME = 512
_HEAD = struct.Struct("<BQiiqQ")
SHORT = FRAME - _HEAD.size
EAGER = 16384
#: The kinds of frames: a message, the report that a long message has arrived, and the end.
_MESSAGE, _ARRIVED, _END = 0, 1, 2
#: The tag of frames.
_FRAMES = 0x7A000000
#: The first tag of messages that follow a frame, and the number of tags after which they begin again.
_FIRST, _ROUND = 0x10000000, 1 << 28
#: The number of transfers that may be under way before the sender waits for the oldest.
_KEPT = 256


def context(name: Any) -> int:
    """Return a number for the name of a communicator, the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(name).encode(), digest_size=8).digest(), "little")


class Message:
    """What a frame announced: the bytes of a message, or where to ask for them."""

    __slots__ = ("data", "nbytes", "number", "request", "sender", "source", "tag")

    def __init__(self, source: int, tag: int, nbytes: int, data: Bytes | None, sender: int = -1, number: int = 0) -> None:
        #: The sender's rank in the communicator.
        self.source = source
        self.tag = tag
        self.nbytes = nbytes
        self.data = data
        #: The sender's place in the group.
        self.sender = sender
        self.number = number
        #: The send that waits for this message, if the process sent it to itself.
        self.request: PostRequest | None = None


class PostRequest(Matched):
    """A send or receive of this process."""

    __slots__ = ("key", "post")

    def __init__(self, post: Post, data: Bytes, key: tuple[int, int, int] | None = None) -> None:
        super().__init__(data)
        self.post = post
        #: The (context, source, tag) of a receive, or None for a send.
        self.key = key

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
            self.done = True
        return True

    def _until(self, requests: Sequence[Any]) -> None:
        post = self.post
        with post.changed:
            while not any(request.done for request in requests):
                post.check()
                post.changed.wait()


class Post:
    """The messages of one process of a group, for all communicators of its ranks."""

    def __init__(self, native: Any) -> None:
        self.native = native
        self.place: int = native.rank()
        self.size: int = native.size()
        self.matcher = Matcher()
        #: Held to look at the matcher or to complete a request; notified when a message arrived or a request was completed.
        self.changed = threading.Condition()
        self._broken = ""
        self._number = 0
        #: Sends that wait for the report that their message has arrived, by (receiver, number).
        self._long: dict[tuple[int, int], tuple[PostRequest, Any]] = {}
        #: The transfers of frames and eager messages that are under way, with the memory that they use.
        self._flying: deque[tuple[Any, Any]] = deque()
        self._postman: threading.Thread | None = None
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

    def send(self, context: int, source: int, dest: int, tag: int, data: Bytes) -> PostRequest:
        """Start a message from rank `source` of a communicator to the process at place `dest`."""
        self.check()
        request = PostRequest(self, data)
        request.status = Status(source, tag, data.nbytes)
        if dest == self.place:
            self._to_itself(context, source, tag, request)
            return request
        self._begin()
        self._number = number = self._number % _ROUND + 1
        nbytes = data.nbytes
        if nbytes > EAGER:
            # This is registered before the frame leaves, because the report of its arrival may come at once.
            payload = self._carry(data, dest, _FIRST + number)
            self._long[dest, number] = (request, payload)
            self._frame(dest, _MESSAGE, context, source, tag, nbytes, number)
            return request
        if nbytes > SHORT:
            kept = data.copy()
            self._flying.append((self._carry(kept, dest, _FIRST + number), kept))
            self._frame(dest, _MESSAGE, context, source, tag, nbytes, number)
        else:
            self._frame(dest, _MESSAGE, context, source, tag, nbytes, number, data)
        request.done = True
        while len(self._flying) > _KEPT:
            self._wait(self._flying.popleft()[0])
        return request

    def receive(self, context: int, source: int, tag: int, data: Bytes, after: tuple[Array, Layout] | None) -> PostRequest:
        """Start a receive."""
        self.check()
        self._begin()
        request = PostRequest(self, data, (context, source, tag))
        request.after = after
        with self.changed:
            message = self.matcher.post(context, source, tag, request)
        if message is not None:
            self._deliver(message, request)
        return request

    def peek(self, context: int, source: int, tag: int) -> Status | None:
        """Return the status of the message that such a receive would get now, or None."""
        self.check()
        self._begin()
        with self.changed:
            message = self.matcher.peek(context, source, tag)
        return None if message is None else Status(message.source, message.tag, message.nbytes)

    def until_peek(self, context: int, source: int, tag: int) -> Status:
        """Wait for the message that such a receive would get, and return its status."""
        self._begin()
        with self.changed:
            while True:
                message = self.matcher.peek(context, source, tag)
                if message is not None:
                    return Status(message.source, message.tag, message.nbytes)
                self.check()
                self.changed.wait()

    def check(self) -> None:
        """Raise `Aborted` if a process of the group has gone."""
        if self._broken:
            raise Aborted(f"another rank failed ({self._broken})")

    def close(self) -> None:
        """End the postman after all messages. Every process calls it."""
        self._begin()
        if self._postman is not None:
            self._frame((self.place + 1) % self.size, _END)
            self._postman.join()
            self._postman = None
            self.check()

    def _begin(self) -> None:
        if self._postman is None and self.size > 1:
            self._postman = threading.Thread(target=self._receive_frames, name="postman", daemon=True)
            self._postman.start()

    def _receive_frames(self) -> None:
        try:
            while self._take_frame():
                pass
        except Exception as error:  # PyTorch raises various errors when a process has gone.
            with self.changed:
                self._broken = str(error).partition("\n")[0] or type(error).__name__
                self.changed.notify_all()

    def _take_frame(self) -> bool:
        frame = np.empty(FRAME, np.uint8)
        work = self.native.recv_anysource([torch.from_numpy(frame)], _FRAMES)
        work.wait()
        sender = work._source_rank()
        kind, context, source, tag, nbytes, number = _HEAD.unpack_from(frame.data)
        if kind == _END:
            return False
        if kind == _ARRIVED:
            request, payload = self._long.pop((sender, number))
            payload.wait()
            self._complete(request)
            return True
        data: Bytes | None = None
        if nbytes <= SHORT:
            data = frame[_HEAD.size : _HEAD.size + nbytes]
        elif nbytes <= EAGER:
            data = np.empty(nbytes, np.uint8)
            self.native.recv([torch.from_numpy(data)], sender, _FIRST + number).wait()
        message = Message(source, tag, nbytes, data, sender, number)
        with self.changed:
            receive = self.matcher.arrive(context, source, tag, message)
            if receive is None:
                self.changed.notify_all()
        if receive is not None:
            self._deliver(message, receive)
        return True

    def _deliver(self, message: Message, receive: PostRequest) -> None:
        """Put a message into its receive, on whichever thread matched the two."""
        room, nbytes = receive.data, message.nbytes
        if nbytes > room.nbytes:
            receive.error = Truncated(nbytes, room.nbytes)
        if message.data is None:
            target = room[:nbytes] if nbytes <= room.nbytes else np.empty(nbytes, np.uint8)
            self._wait(self.native.recv([torch.from_numpy(target)], message.sender, _FIRST + message.number))
            self._frame(message.sender, _ARRIVED, number=message.number)
        elif nbytes <= room.nbytes:
            room[:nbytes] = message.data
        receive.status = Status(message.source, message.tag, nbytes)
        self._complete(receive)
        if message.request is not None and not message.request.done:
            self._complete(message.request)

    def _complete(self, request: PostRequest) -> None:
        with self.changed:
            request.done = True
            self.changed.notify_all()

    def _to_itself(self, context: int, source: int, tag: int, request: PostRequest) -> None:
        message = Message(source, tag, request.data.nbytes, request.data)
        message.request = request
        with self.changed:
            receive = self.matcher.arrive(context, source, tag, message)
            if receive is None:
                if message.nbytes <= EAGER:
                    message.data = request.data.copy()
                    request.done = True
                self.changed.notify_all()
        if receive is not None:
            self._deliver(message, receive)

    def _frame(
        self,
        dest: int,
        kind: int,
        context: int = 0,
        source: int = 0,
        tag: int = 0,
        nbytes: int = 0,
        number: int = 0,
        data: Bytes | None = None,
    ) -> None:
        frame = np.empty(FRAME, np.uint8)
        _HEAD.pack_into(frame.data, 0, kind, context, source, tag, nbytes, number)
        if data is not None:
            frame[_HEAD.size : _HEAD.size + nbytes] = data
        self._flying.append((self._carry(frame, dest, _FRAMES), frame))

    def _carry(self, data: Bytes, dest: int, tag: int) -> Any:
        if not data.flags.writeable:
            # PyTorch has no read-only memory and warns about it.
            data = data.copy()
        try:
            return self.native.send([torch.from_numpy(data)], dest, tag)
        except RuntimeError as error:
            raise lost(error) from error

    def _wait(self, work: Any) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            raise lost(error) from error
