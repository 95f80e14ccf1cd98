"""One name for transfers that a host or a device starts: post and acknowledge, in batches, around kernels.

The uniform layer of Uniconn. A sender *posts* a buffer and raises a signal; the receiver *acknowledges* it: the data is there when the
signal has the value. On host ranks a post is a message, matched in program order between each pair, and the signal is raised when the
message is there.

Uniconn: A Uniform High-Level Communication Library for Portable Multi-GPU Programming (network/backends holds it against its peers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from armillary.comm.buffers import Array, Buffer, flat
from armillary.comm.communicator import Communicator
from armillary.comm.operations import SUM, Op
from armillary.comm.requests import Request
from armillary.errors import InputError

#: The modes in which a kernel can be bound, by backend; devices bring the other two.
_MODES = ("host",)
_ALL_MODES = ("host", "partial-device", "full-device")


class Coordinator:
    """Posts, acknowledgements and collective calls of one rank, in the order of the program.

    Signal values between a pair only grow. A batch with both directions cannot deadlock: nothing waits before it ends.
    """

    def __init__(self, comm: Communicator, stream: Any = None, mode: str = "host") -> None:
        if stream is not None:
            raise InputError("stream: found one; expected None where ranks have no device")
        self.comm = comm
        self.mode = _checked(mode)
        self._ranks = comm._shadow
        self._posted: list[Request] = []
        self._awaited: list[tuple[Request, Any, int]] = []
        self._batch = False
        self._kernel: Callable[[], Any] | None = None

    @contextmanager
    def batch(self) -> Iterator[Coordinator]:
        """Everything posted and acknowledged inside is done at the end."""
        if self._batch:
            raise InputError("batch: found one inside another; expected one at a time")
        self._batch = True
        try:
            yield self
        finally:
            self._batch = False
        self.wait()

    def post(self, src: Buffer, dst: Buffer, count: int, signal: Array | None, value: int, dest: int) -> None:
        """Make the first `count` elements of `src` visible in `dst` of rank `dest`, and raise its `signal` to `value`."""
        data = _first(src, count, "src")
        counters = self.comm._tally.now
        counters.calls += 1
        if dest != self.comm.rank:
            counters.messages += 1
            counters.bytes += data.nbytes
        self._posted.append(self._ranks.isend(data, dest, 0))

    def acknowledge(self, dst: Buffer, count: int, signal: Array | None, value: int, source: int) -> None:
        """Wait (in a batch: at its end) until the signal is at least `value`; `dst` then holds what `source` posted."""
        self.comm._tally.now.calls += 1
        self._awaited.append((self._ranks.irecv(_first(dst, count, "dst"), source, 0), signal, value))
        if not self._batch:
            self._acknowledge()

    def wait(self) -> None:
        """Return when everything posted and acknowledged so far is done."""
        self._acknowledge()
        posted, self._posted = self._posted, []
        self.comm.waitall(posted)

    def bind(self, kernel: Callable[..., Any], grid: Any = None, block: Any = None, args: Sequence[Any] = (), mode: str = "host") -> None:
        """The kernel that `launch` runs when the coordinator is in this mode; on host ranks a function, called with `args`."""
        if _checked(mode) == self.mode:
            self._kernel = lambda: kernel(*args)

    def launch(self) -> Any:
        """Run the bound kernel."""
        if self._kernel is None:
            raise InputError(f"launch: found no kernel bound in mode {self.mode}; expected bind(...) before")
        return self._kernel()

    def allreduce(self, send: Any, recv: Any = None, op: Op = SUM) -> Any:
        """As the communicator's, after everything posted before."""
        self.wait()
        return self.comm.allreduce(send, recv, op)

    def reduce(self, send: Any, recv: Any = None, op: Op = SUM, root: int = 0) -> Any:
        """As the communicator's."""
        self.wait()
        return self.comm.reduce(send, recv, op, root)

    def broadcast(self, buf: Buffer, root: int = 0) -> Buffer:
        """As the communicator's `bcast`."""
        self.wait()
        return self.comm.bcast(buf, root)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in ("allgather", "allgatherv", "gather", "gatherv", "scatter", "scatterv", "alltoall", "alltoallv"):
            raise AttributeError(f"a coordinator has no {name}")
        call = getattr(self.comm, name)

        def after(*args: Any, **named: Any) -> Any:
            self.wait()
            return call(*args, **named)

        return after

    def _acknowledge(self) -> None:
        awaited, self._awaited = self._awaited, []
        for request, signal, value in awaited:
            request.wait()
            if signal is not None:
                np.maximum(signal, value, out=signal)


def _first(buffer: Buffer, count: int, what: str) -> Array:
    array = flat(buffer, what, writable=what == "dst")
    if not 0 <= count <= array.size:
        raise InputError(f"count: found {count}; expected 0 to the {array.size} elements of {what}")
    return array[:count]


def _checked(mode: str) -> str:
    if mode not in _MODES:
        known = "is not offered by host ranks" if mode in _ALL_MODES else "is unknown"
        raise InputError(f'mode: found "{mode}", which {known}; expected {", ".join(_MODES)}')
    return mode
