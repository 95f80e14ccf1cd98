"""Halos that are exchanged through views: everything a step needs is made once, and an exchange only calls it.

    halo = StreamHalo(comm, views, decomposition=(2, 2), periodic=True)
    for step in range(1000):
        halo.start()        # pack all sides and post their messages
        inside()            # kernels that read no halo
        halo.finish()       # the halos are there

On the host, messages are persistent requests of MPI, or those of any communicator of `armillary.comm`. On GPUs the sends and receives of
all sides are one group of NCCL on a stream of their own; events order it after the kernels that were launched before `start` and before
those that are launched after `finish`, and the host waits for nothing. Corners travel as messages of their own, so one round is enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from armillary.errors import InputError

from .sides import Offset, grid, neighbours, offsets, opposite, received, sent
from .streams import COMMUNICATION, COMPUTE, Call, CudaStreams, HostStreams, Streams
from .views import Views

Array = Any
#: One message: offset, rank, and the part of the buffer.
Message = tuple[Offset, int, slice]


class StreamHalo:
    """The exchange of the halos of `views` between the ranks of `comm`, which stand in a grid row by row; all ranks make it together.

    `fields` are those that are exchanged, all by default. `stream` is the stream of your kernels where the fields lie on a GPU: PyTorch's,
    or CuPy's for its arrays; a new one without it. With `persistent=False` messages are posted anew in each exchange. `start` and `finish`
    are lists of calls; `calls` has them for those who replay them from a list of their own.
    """

    def __init__(
        self, comm: Any, views: Views, stream: Any = None, *, fields: Sequence[str] | None = None,
        decomposition: Sequence[int] | None = None, periodic: Sequence[bool] | bool = False, persistent: bool = True,
        streams: Streams | None = None,
    ) -> None:  # fmt: skip
        self.views = views
        self.fields = tuple(views.fields if fields is None else fields)
        for name in self.fields:
            if name not in views.fields:
                raise InputError(f'fields: found "{name}"; expected some of {", ".join(views.fields)}')
        dims, wraps = grid(comm.size, len(views.shape), decomposition, periodic)
        self.around = neighbours(comm.rank, dims, wraps)
        library = "torch" if views.on_device else "numpy"
        self._made = views.for_(library)
        if streams is None:
            streams = CudaStreams(views.kind, stream) if views.on_device else HostStreams()
        self.streams = streams
        self.out, self.sends, packs = self._plan(self._made.send, list(self.around))
        # NCCL matches the messages of a pair in order: what was sent towards an offset arrives from the opposite one, in the same order.
        ordered = [opposite(o) for o in offsets(len(views.shape)) if opposite(o) in self.around]
        self.into, self.receives, unpacks = self._plan(self._made.receive, ordered)
        self._transport = _transport(comm, self, persistent)
        #: (field, offset, start in the buffer) of all regions that are packed, and of those that are unpacked.
        self.parts = (packs, unpacks)
        self.calls = self._calls()
        #: The functions of `calls` in which the host computes or waits, as opposed to what Python does around them.
        self.away = () if views.on_device or not self.around else (self.calls[0][0][0], self._transport.end, self.calls[1][-1][0])

    def start(self) -> None:
        """Pack all sides and post their messages."""
        for function, arguments in self.calls[0]:
            function(*arguments)

    def finish(self) -> None:
        """Wait for the messages (on a GPU, let the compute stream wait) and unpack them."""
        for function, arguments in self.calls[1]:
            function(*arguments)

    def exchange(self) -> None:
        """Start and finish."""
        self.start()
        self.finish()

    def free(self) -> None:
        """Give persistent requests back."""
        self._transport.free()

    def _plan(self, regions: Any, order: list[Offset]) -> tuple[Array, list[Message], list[tuple[str, Offset, int]]]:
        """Return a buffer for all messages in one direction, the messages, and (field, offset, start) of every region in it."""
        messages, parts, at = [], [], 0
        for offset in order:
            first = at
            for name in self.fields:
                parts.append((name, offset, at))
                at += math.prod(regions[name, offset].shape)
            messages.append((offset, self.around[offset], slice(first, at)))
        like = self._made.whole[self.fields[0]]
        buffer = like.new_zeros(at) if self.views.on_device else np.zeros(at, like.dtype)
        return buffer, messages, parts

    def _calls(self) -> tuple[list[Call], list[Call]]:
        if not self.around:
            return [], []
        streams, bound = self.streams, self.streams.bound
        pack, unpack = self.launch(False), self.launch(True)
        begin, end = self._transport.begin, self._transport.end
        start = [bound(COMPUTE, *pack), *streams.ordered(COMPUTE, COMMUNICATION), bound(COMMUNICATION, begin)]
        finish = [bound(COMMUNICATION, end), *streams.ordered(COMMUNICATION, COMPUTE), bound(COMPUTE, *unpack)]
        return start, finish

    def launch(self, into_fields: bool) -> tuple[Any, ...]:
        """Return the launch that packs all regions, or unpacks them, and its arguments, made anew."""
        parts, buffer = self.parts[into_fields], self.into if into_fields else self.out
        views = self.views
        if views.on_device:
            from .device_packing import movers

            regions = self._made.receive if into_fields else self._made.send
            return (movers([(regions[name, offset], start) for name, offset, start in parts], buffer, into_fields),)
        from .packing import pack, unpack

        axes = len(views.shape)
        if axes > 3:
            raise InputError(f"fields: found {axes} dimensions; expected at most 3")
        rows = []
        for name, offset, start in parts:
            region = (received if into_fields else sent)(views.cells, views.extra[name], views.width, views.depth, offset)
            spans = [(0, 1)] * (3 - axes) + [(part.start, part.stop) for part in region]
            rows.append([self.fields.index(name), *(edge for span in spans for edge in span), start])
        solid = tuple(self._made.whole[name].reshape((1,) * (3 - axes) + views.shape) for name in self.fields)
        return (unpack if into_fields else pack), np.array(rows, np.int64), buffer, solid


def _transport(comm: Any, halo: StreamHalo, persistent: bool) -> Any:
    """The messages of an exchange, prepared as well as the communicator can."""
    native = getattr(comm, "native", comm)
    if halo.views.on_device:
        if not hasattr(comm, "group"):
            raise InputError("comm: found one without groups; expected backend nccl for arrays on GPUs")
        return _Group(comm, halo)
    if hasattr(native, "Send_init"):
        return (_Persistent if persistent else _Posted)(native, halo)
    return _Plain(comm, halo)


class _Group:
    """One group of sends and receives, queued on the current stream."""

    def __init__(self, comm: Any, halo: StreamHalo) -> None:
        self._comm = comm
        self._sends = [(halo.out[part], rank) for _, rank, part in halo.sends]
        self._receives = [(halo.into[part], rank) for _, rank, part in halo.receives]

    def begin(self) -> None:
        with self._comm.group():
            for buffer, rank in self._sends:
                self._comm.isend(buffer, rank)
            for buffer, rank in self._receives:
                self._comm.irecv(buffer, rank)

    def end(self) -> None:
        """The stream orders what follows."""

    def free(self) -> None:
        """Nothing was kept."""


class _Plain:
    """Messages of any communicator of `armillary.comm`."""

    def __init__(self, comm: Any, halo: StreamHalo) -> None:
        self._comm = comm
        self._sends = [(halo.out[part], rank, _tag(offset)) for offset, rank, part in halo.sends]
        self._receives = [(halo.into[part], rank, _tag(opposite(offset))) for offset, rank, part in halo.receives]
        self._requests: list[Any] = []

    def begin(self) -> None:
        self._requests = [self._comm.irecv(*one) for one in self._receives]
        self._requests += [self._comm.isend(*one) for one in self._sends]

    def end(self) -> None:
        self._comm.waitall(self._requests)

    def free(self) -> None:
        """Nothing was kept."""


class _Posted:
    """Messages of MPI, posted anew each time."""

    def __init__(self, native: Any, halo: StreamHalo) -> None:
        from mpi4py import MPI

        self._irecv, self._isend, self._waitall = native.Irecv, native.Isend, MPI.Request.Waitall
        self._sends = [(halo.out[part], rank, _tag(offset)) for offset, rank, part in halo.sends]
        self._receives = [(halo.into[part], rank, _tag(opposite(offset))) for offset, rank, part in halo.receives]
        self._requests: list[Any] = []

    def begin(self) -> None:
        self._requests = [self._irecv(*one) for one in self._receives]
        self._requests += [self._isend(*one) for one in self._sends]

    def end(self) -> None:
        self._waitall(self._requests)

    def free(self) -> None:
        """Nothing was kept."""


class _Persistent:
    """Persistent requests of MPI."""

    def __init__(self, native: Any, halo: StreamHalo) -> None:
        from mpi4py import MPI

        requests = [native.Recv_init(halo.into[part], rank, _tag(opposite(offset))) for offset, rank, part in halo.receives]
        requests += [native.Send_init(halo.out[part], rank, _tag(offset)) for offset, rank, part in halo.sends]
        self._requests = requests
        self._startall, self._waitall = MPI.Prequest.Startall, MPI.Request.Waitall

    def begin(self) -> None:
        self._startall(self._requests)

    def end(self) -> None:
        self._waitall(self._requests)

    def free(self) -> None:
        for request in self._requests:
            request.Free()


def _tag(offset: Offset) -> int:
    """A number for a direction: the digits of offset + 1 in base 3."""
    from armillary.network.halo.exchange.geometry import direction

    return direction(offset)
