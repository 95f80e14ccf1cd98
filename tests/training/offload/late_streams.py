"""Streams without a GPU, on which a copy happens as late as it may: when somebody waits for an event behind it.

Code that forgets to wait computes with what was in the buffer before, and code that reuses a buffer too early finds it overwritten late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class LateEvent:
    """A place in a stream's queue."""

    def __init__(self, stream: LateStream) -> None:
        self.stream, self.place = stream, stream.issued

    def synchronize(self) -> None:
        self.stream.catch_up(self.place)

    def elapsed_time(self, later: LateEvent) -> float:
        return 0.0


class LateStream:
    """Copies and waits that were issued and have not happened yet, in order."""

    def __init__(self) -> None:
        self.issued = self.happened = 0
        self.queue: list[Callable[[], None]] = []

    def put(self, work: Callable[[], None]) -> None:
        self.queue.append(work)
        self.issued += 1

    def wait_event(self, event: LateEvent) -> None:
        self.put(event.synchronize)

    def catch_up(self, place: int) -> None:
        while self.happened < place:
            self.happened += 1
            self.queue.pop(0)()


class ComputingStream(LateStream):
    """The stream that computes does everything at once."""

    def wait_event(self, event: LateEvent) -> None:
        event.synchronize()


class LateStreams:
    """In the place of `CudaStreams`."""

    def __init__(self) -> None:
        self.to, self.back, self._now = LateStream(), LateStream(), ComputingStream()
        self.copies = 0

    def now(self) -> ComputingStream:
        return self._now

    def event(self, stream: LateStream, *, timed: bool = False) -> LateEvent:
        return LateEvent(stream)

    def copy(self, target: Any, source: Any, stream: LateStream) -> None:
        self.copies += 1
        stream.put(lambda: target.copy_(source))

    def keep(self, tensor: Any, stream: LateStream) -> None:
        """The queue holds the tensor."""

    def empty(self, shape: Any, dtype: Any) -> Any:
        made = torch.empty(shape, dtype=dtype)
        return made.fill_(float("nan")) if dtype.is_floating_point else made.fill_(255)

    def synchronize(self) -> None:
        for stream in (self.to, self.back):
            stream.catch_up(stream.issued)
