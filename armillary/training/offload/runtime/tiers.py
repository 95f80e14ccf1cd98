"""The memories of the real runtime: a fast tier with a budget, the host's pinned memory, and files.

Without a GPU the fast tier is RAM and the rest is in files. On a GPU the fast tier is its memory, the host keeps pinned buffers up to its
budget, and files keep what does not fit. Transfers run beside computation: on two CUDA streams, and in one thread that reads files.
A tensor is always complete in at least one memory.
"""

# Much of PyTorch carries no annotations.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from armillary.errors import InputError

from .spill import SpillFile, SpillFolder
from .streams import CudaStreams

_ALIGNED = 64


class Tiers:
    """Where the bytes of every tensor are. Tensors are numbered; `size` are their bytes."""

    def __init__(
        self, size: list[int], device: torch.device, fast_bytes: float, host_bytes: float, folder: SpillFolder | None, streams: Any = None
    ) -> None:
        self.size, self.device, self.fast_bytes, self.host_bytes, self.folder = size, device, fast_bytes, host_bytes, folder
        self.fast: list[Tensor | None] = [None] * len(size)
        self.host: list[Tensor | None] = [None] * len(size)
        self.files: list[SpillFile | None] = [None] * len(size)
        #: Whether the copy in the host or in the file holds the tensor's current value.
        self.host_valid, self.file_valid = [False] * len(size), [False] * len(size)
        #: Free buffers of the fast tier by size, kept for reuse while `pooled`.
        self.pool: dict[int, list[Tensor]] = {}
        self.pooled = False
        self.allocated = self.peak = self.host_held = 0
        self.stall_s = 0.0
        self.moved = {"in": 0, "out": 0, "read": 0, "write": 0}
        #: None where copies happen at once.
        self.streams = CudaStreams(device) if streams is None and device.type == "cuda" else streams
        self._reader = ThreadPoolExecutor(1, "offload-read")
        self._reading: dict[int, Future[None]] = {}
        #: The host memory that a read fills.
        self._staged: dict[int, Tensor] = {}
        #: Events after which a tensor is in the fast tier, a pooled buffer (by address) is free, and a copy in the host is complete.
        self._arrived: dict[int, Any] = {}
        self._freed: dict[int, Any] = {}
        self._left: dict[int, Any] = {}
        self._waits: list[tuple[Any, Any]] = []

    # Buffers

    def _buffer(self, nbytes: int) -> Tensor:
        ready = self.pool.get(nbytes)
        if ready:
            return ready.pop()
        self.allocated += nbytes
        self.peak = max(self.peak, self.allocated)
        return _bytes(nbytes, self.device)

    def _give_back(self, buffer: Tensor, done: Any = None) -> None:
        """Frees a buffer; a pooled one on a GPU behind what was computed so far, or behind the event `done` of a copy that still reads it.

        Other buffers go back to the allocator, which may give their memory to anything in between, so no event of theirs is kept.
        """
        if not self.pooled:
            self.allocated -= buffer.numel()
            return
        if self.streams is not None:
            self._freed[buffer.data_ptr()] = self.streams.event(self.streams.now()) if done is None else done
        self.pool.setdefault(buffer.numel(), []).append(buffer)

    def empty_pool(self) -> None:
        """Gives all free buffers of the fast tier back to the allocator."""
        self.allocated -= sum(size * len(free) for size, free in self.pool.items())
        self.pool.clear()
        self._freed.clear()

    def _host_buffer(self, i: int) -> Tensor | None:
        """A host buffer for a tensor, after copies that another memory has too were dropped; None if the budget does not allow one."""
        if self.host_held + self.size[i] > self.host_bytes:
            for j, held in enumerate(self.host):
                if j != i and held is not None and j not in self._reading and (self.file_valid[j] or self._safe(j)):
                    self._wait_copy(j)
                    self._drop_host(j)
                    if self.host_held + self.size[i] <= self.host_bytes:
                        break
        if self.host_held + self.size[i] > self.host_bytes:
            return None
        self.host_held += self.size[i]
        return self._host_bytes(i)

    def _host_bytes(self, i: int) -> Tensor:
        """Host memory for a tensor, pinned where copies run beside computation."""
        return _bytes(self.size[i], torch.device("cpu")) if self.streams is None else self.streams.empty(self.size[i], torch.uint8)

    def _safe(self, j: int) -> bool:
        """Whether the fast tier holds tensor j completely."""
        return self.fast[j] is not None and j not in self._reading

    def _drop_host(self, j: int) -> None:
        self.host[j], self.host_valid[j] = None, False
        self.host_held -= self.size[j]

    # Moves

    def store(self, i: int, value: Tensor) -> None:
        """Makes `value` (bytes on the CPU) the value of tensor i in the host or in its file; the fast tier is left as it is."""
        if self.host[i] is None:
            self.host[i] = self._host_buffer(i)
        target = self.host[i]
        if target is not None:
            self._wait_copy(i)
            self._left.pop(i, None)
            if target.data_ptr() != value.data_ptr():
                target.copy_(value)
            self.host_valid[i], self.file_valid[i] = True, False
            return
        self._write(i, value)

    def assign(self, i: int, value: Tensor, dtype: torch.dtype) -> None:
        """Makes `value`, a tensor on the CPU, the value of tensor i in every memory that has it; it is rounded to `dtype` on its way."""
        if i in self._reading:
            self._finish_read(i)
        if self.host[i] is None:
            self.host[i] = self._host_buffer(i)
        target = self.host[i]
        if target is None:
            flat = value.to(dtype).contiguous().reshape(-1).view(torch.uint8)
            self._write(i, flat)
            if self.fast[i] is not None:
                self.ready(i).copy_(flat)
            return
        self._wait_copy(i)
        self._left.pop(i, None)
        if target.data_ptr() != value.data_ptr():
            target.view(dtype).copy_(value.reshape(-1))
        self.host_valid[i], self.file_valid[i] = True, False
        self.refresh(i)

    def _write(self, i: int, value: Tensor) -> None:
        if self.folder is None:
            raise InputError(f"the host's {self.host_bytes:.0f} bytes do not hold the parameters, and there is no nvme_dir")
        made = self.files[i]
        if made is None:
            made = self.files[i] = self.folder.file(str(i))
        made.write(_view(value))
        self.moved["write"] += self.size[i]
        self.file_valid[i], self.host_valid[i] = True, False

    def start(self, i: int) -> None:
        """Begins to bring tensor i into the fast tier."""
        if self.fast[i] is not None:
            return
        self.fast[i] = self._buffer(self.size[i])
        if self.host_valid[i]:
            self._copy_in(i)
        elif self.file_valid[i]:
            self._read(i, to_host=self.host_bytes > 0)
        else:
            raise AssertionError(f"tensor {i} is nowhere")

    def _read(self, i: int, to_host: bool) -> None:
        made = self.files[i]
        assert made is not None
        target = self._host_buffer(i) if to_host and self.host[i] is None else self.host[i]
        if target is None:  # Straight into RAM, or through a buffer of its own on a GPU.
            target = self.fast[i] if self.streams is None else self._host_bytes(i)
        elif self.host[i] is None:
            self.host[i] = target
        assert target is not None
        self.moved["read"] += self.size[i]
        self._reading[i] = self._reader.submit(made.read_into, _view(target))
        self._staged[i] = target

    def prefetch_host(self, i: int) -> None:
        """Begins to read tensor i from its file into the host: the first of two steps."""
        if self.fast[i] is None and not self.host_valid[i] and i not in self._reading and self.file_valid[i] and self.host_bytes > 0:
            self._read(i, to_host=True)

    def _finish_read(self, i: int) -> None:
        """Waits for a read; an error of it leaves all other tensors as they are."""
        future = self._reading.pop(i)
        staged = self._staged.pop(i)
        try:
            future.result()
        except InputError:
            if self.host[i] is not None:
                self._drop_host(i)
            buffer = self.fast[i]
            if buffer is not None:
                self.fast[i] = None
                self._give_back(buffer)
            raise
        if self.host[i] is not None:
            self.host_valid[i] = True
        if self.fast[i] is not None and staged is not self.fast[i]:
            self._copy_in(i, staged)

    def _copy_in(self, i: int, source: Tensor | None = None) -> None:
        """Copies tensor i from the host into its buffer of the fast tier."""
        target, source = self.fast[i], self.host[i] if source is None else source
        assert target is not None
        assert source is not None
        self.moved["in"] += self.size[i]
        streams = self.streams
        if streams is None:
            target.copy_(source)
            return
        # The host's copy may still be on its way, and the buffer in use.
        left, freed = self._left.get(i), self._freed.pop(target.data_ptr(), None)
        if left is not None:
            streams.to.wait_event(left)
        streams.to.wait_event(streams.event(streams.now()) if freed is None else freed)
        streams.copy(target, source, streams.to)
        self._arrived[i] = streams.event(streams.to)

    def advance(self) -> None:
        """Takes the second step of every read that is done, without waiting."""
        for i in [i for i, future in self._reading.items() if future.done() and self.fast[i] is not None]:
            self._finish_read(i)

    def pending(self, i: int) -> bool:
        """Whether a transfer of tensor i into the fast tier has to be waited for."""
        return i in self._reading or i in self._arrived

    def ready(self, i: int) -> Tensor:
        """The bytes of tensor i in the fast tier, waited for."""
        if self.fast[i] is None:
            self.start(i)
        if i in self._reading:
            began = time.perf_counter_ns()
            self._finish_read(i)
            self.stall_s += (time.perf_counter_ns() - began) / 1e9
        event = self._arrived.pop(i, None)
        if event is not None:
            now = self.streams.now()
            before = self.streams.event(now, timed=True)
            now.wait_event(event)
            self._waits.append((before, self.streams.event(now, timed=True)))
        found = self.fast[i]
        assert found is not None
        return found

    def _wait_copy(self, i: int) -> None:
        """Waits until no transfer reads or writes the host's copy of tensor i."""
        for event in (self._arrived.get(i), self._left.get(i)):
            if event is not None:
                event.synchronize()

    def release(self, i: int) -> None:
        """Frees the fast tier's buffer of tensor i; its value is copied out first if it is nowhere else."""
        if self.fast[i] is None:
            return
        if i in self._reading:
            self._finish_read(i)
        buffer = self.fast[i]
        assert buffer is not None
        done = None
        if not self.host_valid[i] and not self.file_valid[i]:
            done = self._copy_out(i, buffer)
        elif i in self._arrived:
            self.streams.now().wait_event(self._arrived.pop(i))
        self.fast[i] = None
        self._give_back(buffer, done)

    def _copy_out(self, i: int, buffer: Tensor) -> Any:
        """Copies a tensor to the host, or to its file; returns the event after which its buffer is free, or None if it is now."""
        self.moved["out"] += self.size[i]
        target = self._host_buffer(i) if self.host[i] is None else self.host[i]
        if target is None:
            self._write(i, buffer.cpu())
            return None
        self.host[i], self.host_valid[i] = target, True
        streams = self.streams
        if streams is None:
            target.copy_(buffer)
            return None
        arrived = self._arrived.pop(i, None)
        if arrived is not None:
            streams.back.wait_event(arrived)
        streams.back.wait_event(streams.event(streams.now()))
        streams.copy(target, buffer, streams.back)
        self._left[i] = streams.event(streams.back)
        return self._left[i]

    def spill(self, i: int) -> None:
        """Moves the host's copy of tensor i to its file."""
        if self.host_valid[i]:
            self.value(i)
            held = self.host[i]
            assert held is not None
            self._write(i, held)
            self._drop_host(i)

    def taken(self, i: int) -> Tensor:
        """The bytes of tensor i on the CPU, to be overwritten before they are assigned: the host's own if it has them, or a copy."""
        found = self.value(i)
        if not self.host_valid[i]:
            return found.clone()
        self._wait_copy(i)
        return found

    def value(self, i: int) -> Tensor:
        """The bytes of tensor i on the CPU, from whichever memory has them; not to be kept."""
        if i in self._reading:
            self._finish_read(i)
        if self.host_valid[i]:
            pending = self._left.pop(i, None)
            if pending is not None:
                pending.synchronize()
            held = self.host[i]
            assert held is not None
            return held
        here = self.fast[i]
        if here is not None:
            if i in self._arrived:
                self.streams.now().wait_event(self._arrived[i])
            return here.cpu()
        made = self.files[i]
        assert made is not None
        assert self.file_valid[i]
        found = _bytes(self.size[i], torch.device("cpu"))
        made.read_into(_view(found))
        self.moved["read"] += self.size[i]
        return found

    def refresh(self, i: int) -> None:
        """Brings the fast tier's copy of tensor i up to date with the host's."""
        target, source = self.fast[i], self.host[i]
        if target is not None and source is not None and target.data_ptr() != source.data_ptr():
            self._copy_in(i)

    def take_stall(self) -> float:
        """Seconds that computation waited for tensors since the last call."""
        if self._waits:
            self.streams.synchronize()
            self.stall_s += sum(before.elapsed_time(after) for before, after in self._waits) / 1e3
            self._waits.clear()
        found, self.stall_s = self.stall_s, 0.0
        return found

    def close(self) -> None:
        """Ends the reading thread and removes the files."""
        self._reader.shutdown(wait=True, cancel_futures=True)
        if self.folder is not None:
            self.folder.close()


def _bytes(count: int, device: torch.device) -> Tensor:
    """Uninitialised bytes, aligned to 64 so that kernels take the same path as with PyTorch's own memory."""
    made = torch.empty(count + _ALIGNED, dtype=torch.uint8, device=device)
    skip = -made.data_ptr() % _ALIGNED
    return made[skip : skip + count]


def _view(data: Tensor) -> memoryview:
    return memoryview(data.numpy())  # type: ignore[arg-type]
