"""The two threads of a rank that move versions: one sends chunks while it may, the other receives those of a neighbour.

Every version is announced by a row of numbers and a description, then come its bytes in chunks. The threads use groups of their own, one
for each distance on the ring, so that they do not meet the collectives of training.
"""

# Much of PyTorch carries no annotations.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from .state import Description
from .versions import Versions

dist: Any = torch.distributed
#: In the place of a version: the sender ends. In the place of a size: the rest of the version does not come.
_END = -1
#: Seconds after which a sender that waits for its turn looks again; it is woken before.
_LOOK_S = 0.5


class Gate:
    """Whether checkpoint traffic may go out now, and how many bytes of it; shared between training and the sender."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._room = 0.0
        self._idle = False
        self._flush = False
        self.stopped = False

    def open(self, room: float) -> None:
        """A span begins, with room for this many bytes."""
        with self._changed:
            self._idle, self._room = True, room
            self._changed.notify_all()

    def close(self) -> None:
        """A collective begins."""
        with self._changed:
            self._idle = False

    def flush(self, on: bool) -> None:
        """From now on everything may go out at once, or not any more."""
        with self._changed:
            self._flush = on
            self._changed.notify_all()

    def stop(self) -> None:
        """Lets a waiting sender go."""
        with self._changed:
            self.stopped = True
            self._changed.notify_all()

    def take(self, most: int) -> int:
        """Waits until bytes may go out, and returns how many, up to `most`; 0 if the sender is to stop."""
        with self._changed:
            while not self.stopped:
                if self._flush:
                    return most
                if self._idle and self._room >= 1:
                    size = int(min(most, self._room))
                    self._room -= size
                    return size
                self._changed.wait(_LOOK_S)
            return 0


class Sender:
    """Sends one version at a time to some neighbours; `wait` returns when it is out."""

    def __init__(self, peers: list[tuple[int, Any]], gate: Gate, own: Versions) -> None:
        self._peers, self._gate, self._own = peers, gate, own
        self._job: tuple[int, Description, Callable[[int, Tensor], None], int, int] | None = None
        self._wake = threading.Condition()
        self.error: Exception | None = None
        #: Seconds and bytes of chunks so far, and their number.
        self.sent_s, self.sent_bytes, self.chunks = 0.0, 0, 0
        self._thread = threading.Thread(target=self._run, daemon=True, name="checkpoint sender")
        self._thread.start()

    def begin(self, version: int, description: Description, read: Callable[[int, Tensor], None], total: int, chunk: int) -> None:
        """Begins to send the `total` bytes that `read(begin, into)` gives, `chunk` at a time, and to keep them."""
        with self._wake:
            self._job = (version, description, read, total, chunk)
            self._wake.notify_all()

    def wait(self) -> None:
        """Returns when nothing is left to send, or when sending has failed."""
        with self._wake:
            while self._job is not None and self.error is None and not self._gate.stopped:
                self._wake.wait(_LOOK_S)

    def end(self) -> None:
        """Ends the thread; a neighbour's receiver is told unless the connection is gone."""
        self._gate.stop()
        with self._wake:
            self._wake.notify_all()
        self._thread.join(5.0)

    def _run(self) -> None:
        try:
            while True:
                with self._wake:
                    while self._job is None and not self._gate.stopped:
                        self._wake.wait(_LOOK_S)
                    job = self._job
                if job is None or not self._send(*job):
                    break
                with self._wake:
                    self._job = None
                    self._wake.notify_all()
            for peer, group in self._peers:
                dist.send(torch.tensor([_END, 0, 0, 0]), group=group, group_dst=peer)
        except (RuntimeError, ValueError) as error:
            # Another process has gone. Training notices it in its own collectives, and recovers.
            self.error = error
            with self._wake:
                self._wake.notify_all()

    def _send(self, version: int, description: Description, read: Callable[[int, Tensor], None], total: int, chunk: int) -> bool:
        text = torch.frombuffer(bytearray(json.dumps(description).encode()), dtype=torch.uint8)
        data = self._own.begin(version, total, description, _memory)
        at, announced = 0, False
        while at < total:
            size = self._gate.take(min(chunk, total - at))
            if size == 0:
                for peer, group in self._peers if announced else ():
                    dist.send(torch.tensor([_END]), group=group, group_dst=peer)
                return False
            began = time.perf_counter()
            piece = data[at : at + size]
            read(at, piece)
            for peer, group in self._peers:
                if not announced:
                    dist.send(torch.tensor([version, total, len(text), chunk]), group=group, group_dst=peer)
                    dist.send(text, group=group, group_dst=peer)
                dist.send(torch.tensor([size]), group=group, group_dst=peer)
                dist.send(piece, group=group, group_dst=peer)
            announced = True
            at += size
            self._own.arrived(size)
            self.sent_s, self.sent_bytes, self.chunks = self.sent_s + time.perf_counter() - began, self.sent_bytes + size, self.chunks + 1
        return True


def _memory(total: int) -> Tensor:
    return torch.empty(total, dtype=torch.uint8)


class Receiver:
    """Receives the versions of one neighbour."""

    def __init__(self, peer: int, group: Any, versions: Versions) -> None:
        self._peer, self._group, self.versions = peer, group, versions
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="checkpoint receiver")
        self._thread.start()

    def end(self) -> None:
        """Waits for the neighbour's last word."""
        self._thread.join(5.0)

    def _run(self) -> None:
        try:
            while self._receive():
                pass
        except (RuntimeError, ValueError) as error:
            self.error = error

    def _receive(self) -> bool:
        head = torch.empty(4, dtype=torch.int64)
        dist.recv(head, group=self._group, group_src=self._peer)
        version, total, words, _ = head.tolist()
        if version == _END:
            return False
        text = torch.empty(words, dtype=torch.uint8)
        dist.recv(text, group=self._group, group_src=self._peer)
        description = json.loads(bytes(text.numpy()))
        data = self.versions.begin(version, total, description, _memory)
        at, size = 0, torch.empty(1, dtype=torch.int64)
        while at < total:
            dist.recv(size, group=self._group, group_src=self._peer)
            count = int(size)
            if count == _END:
                break
            dist.recv(data[at : at + count], group=self._group, group_src=self._peer)
            at += count
            self.versions.arrived(count)
        return True
