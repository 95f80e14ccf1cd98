"""PyTorch: on the CPU calls compute on the calling thread, on CUDA they go to a stream of the pool.

Arguments of CPU kernels may be NumPy arrays: they are passed by their host pointer (`torch.from_numpy`), never copied. Kernels for CUDA
take CUDA tensors, and CuPy arrays by DLPack.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary import extras
from armillary.errors import InputError

from .api import Api, DeviceError, Kernel, Stream

#: Arrays whose tensors are kept for the next kernel.
MOST_TENSORS = 4096


class Torch(Api):
    """Callables on tensors that share the caller's memory."""

    name = "torch"

    def __init__(self) -> None:
        self._torch = extras.need("torch")
        self._full = int(self._torch.get_num_threads())
        self._tensors: dict[int, tuple[Any, Any]] = {}

    def call(self, kernel: Kernel, args: tuple[Any, ...]) -> Any:
        """Runs the callable without recording gradients."""
        with self._torch.no_grad():
            return kernel.variant("torch")(*(self._tensor(a) if isinstance(a, np.ndarray) else a for a in args))

    def _tensor(self, array: np.ndarray) -> Any:
        # A conversion costs about as much as a small kernel, and tasks meet the same arrays again and again.
        kept = self._tensors.get(id(array))
        if kept is None or kept[0] is not array:
            if not array.flags.writeable:
                raise InputError("a read-only array cannot be shared with torch; expected a writable one", where="launch")
            if len(self._tensors) >= MOST_TENSORS:
                self._tensors.clear()
            kept = self._tensors[id(array)] = (array, self._torch.from_numpy(array))
        return kept[1]

    def limit(self, threads: int | None) -> None:
        """Sets the number of threads of calls from this thread."""
        self._torch.set_num_threads(self._full if threads is None else min(threads, self._full))

    def close(self) -> None:
        """Forgets the tensors and gives the library its full pool back."""
        self._tensors.clear()
        self.limit(None)


class CudaEvent:
    """A `torch.cuda.Event` that was recorded behind a kernel."""

    def __init__(self, event: Any) -> None:
        self._event = event

    def done(self) -> bool:
        """Asks the driver without waiting."""
        try:
            return bool(self._event.query())
        except RuntimeError as error:
            raise DeviceError(str(error)) from error

    def wait(self) -> None:
        """Waits on the host; the interpreter's lock is given up meanwhile."""
        try:
            self._event.synchronize()
        except RuntimeError as error:
            raise DeviceError(str(error)) from error


class CudaStream:
    """A CUDA stream in which callables enqueue work of PyTorch, or of Triton, which uses PyTorch's current stream."""

    def __init__(self, torch: Any, variant: str) -> None:
        self._torch, self._variant = torch, variant
        self._stream = torch.cuda.Stream()

    def enqueue(self, kernel: Kernel, args: tuple[Any, ...]) -> CudaEvent:
        """Calls the variant with this stream as the current one of the thread, and records an event behind it."""
        call, torch = kernel.variant(self._variant), self._torch
        with torch.cuda.stream(self._stream), torch.no_grad():
            call(*(_on_device(torch, a) for a in args))
            event = torch.cuda.Event()
            event.record(self._stream)
        return CudaEvent(event)


class TorchCuda(Api):
    """PyTorch on an NVIDIA device."""

    name = "torch"
    asynchronous = True
    on_cores = False

    def __init__(self) -> None:
        self._torch = cuda_of(extras.need("torch"), self.name)

    def stream(self) -> Stream:
        """A new CUDA stream."""
        return CudaStream(self._torch, self.name)


def cuda_of(torch: Any, name: str) -> Any:
    """PyTorch, if it sees a CUDA device."""
    if not torch.cuda.is_available():
        raise extras.MissingPackage(f"{name} needs a CUDA device, and this PyTorch sees none")
    return torch


def _on_device(torch: Any, thing: Any) -> Any:
    if isinstance(thing, np.ndarray):
        raise InputError("a NumPy array is not on the device; expected a CUDA tensor (a transfer is a task of its own)", where="launch")
    if hasattr(thing, "__dlpack__") and not torch.is_tensor(thing):
        return torch.from_dlpack(thing)
    return thing
