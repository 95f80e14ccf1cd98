"""Walks along blocks one after another, all on the device, or on the host and streamed through two buffers.

While the blocks of one step are worked on, those of the next are copied in and those of the step before are copied out. Per array there
are two buffers each way, used in turn; a buffer is filled again only when what was in it has been used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from armillary import arrays

BUFFERS = 2


@dataclass
class StreamCounters:
    """Counts of the streaming: `buffers` per array and direction, copies in and out with their bytes, and copies begun one step ahead."""

    buffers: int = 0
    copies_in: int = 0
    copies_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    ahead: int = 0


class Chain:
    """Named arrays of blocks on the device: `source` is read, `target` is written; they may be the same arrays."""

    def __init__(self, source: dict[str, Any], target: dict[str, Any]) -> None:
        self.source = source
        self.target = target
        self.counters = StreamCounters()

    def walk(self, order: Sequence[int], names: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields the blocks of these names at each index in turn; a name without a block there is left out."""
        for i in order:
            yield i, {name: self.source[name][i] for name in names if self._has(name, i)}

    def store(self, i: int, **blocks: Any) -> None:
        """Writes blocks at an index; None is left out."""
        for name, block in blocks.items():
            if block is not None:
                self.target[name][i, ...] = block

    def flush(self) -> None:
        """Waits until everything is written."""

    def turned(self, target: dict[str, Any] | None = None) -> Chain:
        """Returns a chain that reads what this one wrote, and writes to `target` (by default in place)."""
        chain = self._made(self.target, self.target if target is None else target)
        chain.counters = self.counters
        return chain

    def _made(self, source: dict[str, Any], target: dict[str, Any]) -> Chain:
        return Chain(source, target)

    def _has(self, name: str, i: int) -> bool:
        return name in self.source and i < self.source[name].shape[0]

    def empty(self, count: int, *shape: int) -> Any:
        """Returns room for `count` blocks where the blocks of this chain lie."""
        like = self.source["diagonal"]
        return arrays.namespace(like).zeros((count, *shape), dtype=like.dtype, device=arrays.device_of(like))

    def block(self, x: Any) -> Any:
        """Returns a block that came from elsewhere (host or device) where this chain works."""
        return x


class StreamedChain(Chain):
    """Arrays on the host whose blocks pass through buffers on `device`: "cpu" (NumPy, for trying), a CUDA device of PyTorch, or "cupy"."""

    def __init__(self, source: dict[str, Any], target: dict[str, Any], device: str) -> None:
        super().__init__(source, target)
        self.device = device
        self._copier = _copier(device)
        self._buffers: dict[tuple[str, str], list[Any]] = {}
        self._written = 0
        self.counters.buffers = BUFFERS

    def _made(self, source: dict[str, Any], target: dict[str, Any]) -> Chain:
        return StreamedChain(source, target, self.device)

    def walk(self, order: Sequence[int], names: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        order = list(order)
        if order:
            ready = self._fetch(order[0], names, 0)
        for step, i in enumerate(order):
            ahead = None
            if step + 1 < len(order):
                ahead = self._fetch(order[step + 1], names, step + 1)
                self.counters.ahead += len(ahead[0])
            blocks, event = ready
            self._copier.wait(event)
            yield i, blocks
            self._copier.used(("in", step % BUFFERS))
            if ahead is not None:
                ready = ahead

    def _fetch(self, i: int, names: Sequence[str], step: int) -> tuple[dict[str, Any], Any]:
        slot = step % BUFFERS
        self._copier.wait_used(("in", slot))
        blocks = {}
        for name in names:
            if self._has(name, i):
                block = self.source[name][i]
                buffer = self._buffer("in", name, block, slot)
                self._copier.upload(block, buffer)
                self.counters.copies_in += 1
                self.counters.bytes_in += int(block.nbytes)
                blocks[name] = buffer
        return blocks, self._copier.mark()

    def store(self, i: int, **blocks: Any) -> None:
        slot = self._written % BUFFERS
        self._written += 1
        staged = []
        self._copier.wait_out(slot)
        for name, block in blocks.items():
            if block is not None:
                buffer = self._buffer("out", name, block, slot)
                buffer[...] = block
                staged.append((buffer, self.target[name], i))
        self._copier.download(staged, slot)
        self.counters.copies_out += len(staged)
        self.counters.bytes_out += sum(int(buffer.nbytes) for buffer, _, _ in staged)

    def _buffer(self, way: str, name: str, like: Any, slot: int) -> Any:
        key = (way, name)
        if key not in self._buffers:
            self._buffers[key] = [self._copier.empty(like) for _ in range(BUFFERS)]
        return self._buffers[key][slot]

    def flush(self) -> None:
        self._copier.flush()
        arrays.kinds.count_copied(self.counters.bytes_out if self.device != "cpu" else 0)

    def empty(self, count: int, *shape: int) -> Any:
        return self._copier.host(self.source["diagonal"], (count, *shape))

    def block(self, x: Any) -> Any:
        return self._copier.device_copy(x)


class _HostCopier:
    """Buffers on the host: the same steps, one after another."""

    def empty(self, like: Any) -> Any:
        return np.empty(like.shape, like.dtype)

    def host(self, like: Any, shape: tuple[int, ...]) -> Any:
        return np.zeros(shape, like.dtype)

    def device_copy(self, x: Any) -> Any:
        return x

    def upload(self, block: Any, buffer: Any) -> None:
        buffer[...] = block

    def download(self, staged: list[tuple[Any, Any, int]], slot: int) -> None:
        for buffer, target, i in staged:
            target[i] = buffer

    def mark(self) -> Any:
        return None

    def wait(self, event: Any) -> None:
        pass

    def used(self, slot: Any) -> None:
        pass

    def wait_used(self, slot: Any) -> None:
        pass

    def wait_out(self, slot: int) -> None:
        pass

    def flush(self) -> None:
        pass


class _StreamCopier(_HostCopier):
    """A stream for copies in, one for copies out, and events between them and the stream of the work."""

    def __init__(self) -> None:
        self._used: dict[Any, Any] = {}
        self._out: dict[int, Any] = {}
        self._into, self._outward = self._new_stream(), self._new_stream()

    def _new_stream(self) -> Any:
        raise NotImplementedError

    def _current(self) -> Any:
        raise NotImplementedError

    def _event(self, stream: Any) -> Any:
        raise NotImplementedError

    def _on(self, stream: Any) -> Any:
        return stream

    def _copy_out(self, buffer: Any, target: Any, i: int) -> None:
        raise NotImplementedError

    def download(self, staged: list[tuple[Any, Any, int]], slot: int) -> None:
        self._outward.wait_event(self._event(self._current()))
        with self._on(self._outward):
            for buffer, target, i in staged:
                self._copy_out(buffer, target, i)
        self._out[slot] = self._event(self._outward)

    def mark(self) -> Any:
        return self._event(self._into)

    def wait(self, event: Any) -> None:
        self._current().wait_event(event)

    def used(self, slot: Any) -> None:
        self._used[slot] = self._event(self._current())

    def wait_used(self, slot: Any) -> None:
        if slot in self._used:
            self._into.wait_event(self._used[slot])

    def wait_out(self, slot: int) -> None:
        if slot in self._out:
            self._current().wait_event(self._out[slot])

    def flush(self) -> None:
        self._into.synchronize()
        self._outward.synchronize()


class _TorchCopier(_StreamCopier):
    def __init__(self, device: str) -> None:
        self._torch = import_module("torch")
        self._device = self._torch.device(device)
        super().__init__()

    def _new_stream(self) -> Any:
        return self._torch.cuda.Stream(self._device)

    def _current(self) -> Any:
        return self._torch.cuda.current_stream(self._device)

    def _event(self, stream: Any) -> Any:
        return stream.record_event()

    def _on(self, stream: Any) -> Any:
        return self._torch.cuda.stream(stream)

    def empty(self, like: Any) -> Any:
        return self._torch.empty(tuple(like.shape), dtype=like.dtype, device=self._device)

    def host(self, like: Any, shape: tuple[int, ...]) -> Any:
        return self._torch.zeros(shape, dtype=like.dtype, pin_memory=True)

    def device_copy(self, x: Any) -> Any:
        return x.to(self._device)

    def upload(self, block: Any, buffer: Any) -> None:
        with self._on(self._into):
            buffer.copy_(block, non_blocking=True)

    def _copy_out(self, buffer: Any, target: Any, i: int) -> None:
        target[i].copy_(buffer, non_blocking=True)


class _CupyCopier(_StreamCopier):
    def __init__(self) -> None:
        self._cupy = import_module("cupy")
        super().__init__()

    def _new_stream(self) -> Any:
        return self._cupy.cuda.Stream(non_blocking=True)

    def _current(self) -> Any:
        return self._cupy.cuda.get_current_stream()

    def _event(self, stream: Any) -> Any:
        return stream.record()

    def empty(self, like: Any) -> Any:
        return self._cupy.empty(like.shape, like.dtype)

    def host(self, like: Any, shape: tuple[int, ...]) -> Any:
        return import_module("cupyx").zeros_pinned(shape, like.dtype)

    def device_copy(self, x: Any) -> Any:
        return self._cupy.asarray(x)

    def upload(self, block: Any, buffer: Any) -> None:
        buffer.set(np.ascontiguousarray(block), stream=self._into)

    def _copy_out(self, buffer: Any, target: Any, i: int) -> None:
        buffer.get(stream=self._outward, out=target[i], blocking=False)

    def _on(self, stream: Any) -> Any:
        return nullcontext()


def _copier(device: str) -> _HostCopier:
    if device == "cpu":
        return _HostCopier()
    return _CupyCopier() if device == "cupy" else _TorchCopier(device)
