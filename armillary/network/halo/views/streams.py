"""Streams: where work is queued, and the events that order it between two of them.

A GPU has one stream for kernels and one for transfers. The host queues work and goes on; an event marks a place in a stream, and another
stream goes no further until that place is reached. On the host there is one order of things, and nothing needs to be marked.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from armillary import extras

COMPUTE, COMMUNICATION = "compute", "communication"
#: A function and its arguments, ready to be called.
Call = tuple[Callable[..., Any], tuple[Any, ...]]


class Streams(Protocol):
    """What halos need of streams. The calls that are returned are made once and called in every step."""

    def on(self, stream: str) -> AbstractContextManager[Any]:
        """A context in which libraries queue their work on a stream."""

    def bound(self, stream: str, function: Callable[..., Any], *arguments: Any) -> Call:
        """A call that queues work on a stream."""

    def ordered(self, first: str, then: str) -> list[Call]:
        """Calls that let stream `then` wait for all that is on stream `first` when they are made."""

    def synchronise(self) -> None:
        """Wait until all streams are empty."""


class HostStreams:
    """The host: work is done when it is called."""

    def on(self, stream: str) -> AbstractContextManager[Any]:
        """Nothing needs a context."""
        return nullcontext()

    def bound(self, stream: str, function: Callable[..., Any], *arguments: Any) -> Call:
        """The call itself."""
        return function, arguments

    def ordered(self, first: str, then: str) -> list[Call]:
        """Nothing, because calls follow each other."""
        return []

    def synchronise(self) -> None:
        """Nothing is waiting."""


class CudaStreams:
    """Two streams of a GPU, by PyTorch or CuPy. `compute` is a stream of the caller's, or a new one."""

    def __init__(self, library: str, compute: Any = None) -> None:
        self.library = library
        if library == "torch":
            cuda = extras.need("torch").cuda
            self._make, self._event, self._enter = cuda.Stream, cuda.Event, cuda.stream
        else:
            cuda = extras.need("cupy").cuda
            self._make, self._event, self._enter = (
                lambda: cuda.Stream(non_blocking=True), lambda: cuda.Event(disable_timing=True), lambda stream: stream,
            )  # fmt: skip
        self.streams = {COMPUTE: self._make() if compute is None else compute, COMMUNICATION: self._make()}

    def on(self, stream: str) -> AbstractContextManager[Any]:
        """The library's own context of a stream."""
        found: AbstractContextManager[Any] = self._enter(self.streams[stream])
        return found

    def bound(self, stream: str, function: Callable[..., Any], *arguments: Any) -> Call:
        """Work on the compute stream is called as it is, because steps are made inside its context; other work enters its stream."""
        if stream == COMPUTE:
            return function, arguments
        return self._entered, (stream, function, arguments)

    def _entered(self, stream: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        with self._enter(self.streams[stream]):
            function(*arguments)

    def ordered(self, first: str, then: str) -> list[Call]:
        """One event of its own for each pair, recorded anew in each step."""
        event = self._event()
        return [(event.record, (self.streams[first],)), (self.streams[then].wait_event, (event,))]

    def synchronise(self) -> None:
        """Wait for both streams."""
        for stream in self.streams.values():
            stream.synchronize()
