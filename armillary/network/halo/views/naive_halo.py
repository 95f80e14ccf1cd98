"""The exchange as a program writes it that reaches arrays anew each time: converted, sliced, and packed field by field.

Each of the sources of overhead is a switch of `Access`, so that its cost shows when it alone is switched off. Without `loops` one launch
packs all fields, and fresh slices are then fresh tables of regions.
"""

from __future__ import annotations

from typing import Any

from .libraries import as_library
from .sides import Offset, received, sent
from .stream_halo import StreamHalo
from .streams import Call
from .views import Views

Array = Any


class NaiveHalo:
    """An exchange of halos through slices, conversions and staging buffers that are made in each exchange."""

    def __init__(self, comm: Any, views: Views, access: Any, spent: Any, **given: Any) -> None:
        #: The buffers and messages are those of the other rungs; what differs is how data gets into them.
        self._inner = StreamHalo(comm, views, **given)
        self.around = self._inner.around
        self._views, self._access, self._spent = views, access, spent
        self._library = "torch" if views.on_device else "numpy"
        #: The kept views, of the library that packs, and of the owner.
        self._made, self._owned = views.for_(self._library), views.for_(views.kind)
        transport = self._inner._transport
        start: list[Call] = []
        finish: list[Call] = []
        if self.around:
            anew = access.convert or access.slices or access.loops
            pack: Call = (self._copied, (False,)) if anew else self._inner.calls[0][0]
            unpack: Call = (self._copied, (True,)) if anew else self._inner.calls[1][-1]
            start, finish = [pack, (transport.begin, ())], [(transport.end, ()), unpack]
            if access.stage:
                start.insert(1, (self._stage, (self._inner.out,)))
                finish.insert(1, (self._stage, (self._inner.into,)))
        self.calls = (start, finish)
        #: As in `StreamHalo`; what is packed by `_copied` is Python's own.
        self.away = self._inner.away

    def start(self) -> None:
        """Pack and post."""
        for function, arguments in self.calls[0]:
            function(*arguments)

    def finish(self) -> None:
        """Wait and unpack."""
        for function, arguments in self.calls[1]:
            function(*arguments)

    def free(self) -> None:
        """Give requests back."""
        self._inner.free()

    def _copied(self, into_fields: bool) -> None:
        """Pack, or unpack."""
        if not self._access.loops:
            self._launched(into_fields)
            return
        buffer = self._inner.into if into_fields else self._inner.out
        for name, offset, start in self._inner.parts[into_fields]:
            region = self._region(name, offset, into_fields)
            packed = buffer[start : start + _size(region)].reshape(region.shape)
            if into_fields:
                region[...] = packed
            else:
                packed[...] = region

    def _launched(self, into_fields: bool) -> None:
        """One launch, whose arrays are converted anew, and whose regions are described anew, where that is asked for."""
        kept = self._inner.calls[1][-1] if into_fields else self._inner.calls[0][0]
        function, *arguments = self._inner.launch(into_fields) if self._access.slices else (kept[0], *kept[1])
        if self._access.convert and not self._views.on_device:
            shape = arguments[-1][0].shape
            arguments[-1] = tuple(self._converted(self._views.fields[name]).reshape(shape) for name in self._inner.fields)
        function(*arguments)

    def _region(self, name: str, offset: Offset, into_fields: bool) -> Array:
        views, convert = self._views, self._access.convert
        if self._access.slices:
            field = self._converted(views.fields[name]) if convert else self._made.whole[name]
            return field[(received if into_fields else sent)(views.cells, views.extra[name], views.width, views.depth, offset)]
        kept = self._owned if convert else self._made
        region = (kept.receive if into_fields else kept.send)[name, offset]
        return self._converted(region) if convert else region

    def _converted(self, x: Array) -> Array:
        self._spent.conversions += 1
        return as_library(x, self._library)

    def _stage(self, buffer: Array) -> None:
        """Copy packed halos through a further buffer on the host, there and back."""
        if self._views.on_device:
            buffer.copy_(buffer.cpu())
        else:
            buffer[...] = buffer.copy()


def _size(x: Array) -> int:
    """The number of elements; PyTorch's `size` is something else."""
    return int(x.numel()) if hasattr(x, "numel") else int(x.size)
