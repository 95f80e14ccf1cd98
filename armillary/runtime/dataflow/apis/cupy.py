"""CuPy: callables on device arrays, among them cuBLAS products, in CUDA streams of a pool."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary import extras
from armillary.errors import InputError

from .api import Api, DeviceError, Kernel, Stream


class CupyEvent:
    """A `cupy.cuda.Event` that was recorded behind a kernel."""

    def __init__(self, event: Any) -> None:
        self._event = event

    def done(self) -> bool:
        """Asks the driver without waiting."""
        try:
            return bool(self._event.done)
        except RuntimeError as error:
            raise DeviceError(str(error)) from error

    def wait(self) -> None:
        """Waits on the host."""
        try:
            self._event.synchronize()
        except RuntimeError as error:
            raise DeviceError(str(error)) from error


class CupyStream:
    """A CUDA stream in which callables enqueue CuPy's work; PyTorch tensors are taken by DLPack."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._stream = cupy.cuda.Stream(non_blocking=True)

    def enqueue(self, kernel: Kernel, args: tuple[Any, ...]) -> CupyEvent:
        """Calls the variant with this stream as the current one of the thread, and records an event behind it."""
        call = kernel.variant("cupy")
        with self._stream:
            call(*(self._on_device(a) for a in args))
            event = self._cupy.cuda.Event(block=True, disable_timing=True)
            event.record(self._stream)
        return CupyEvent(event)

    def _on_device(self, thing: Any) -> Any:
        if isinstance(thing, np.ndarray):
            raise InputError("a NumPy array is not on the device; expected a CuPy array (a transfer is a task of its own)", where="launch")
        if hasattr(thing, "__dlpack__") and not isinstance(thing, self._cupy.ndarray):
            return self._cupy.from_dlpack(thing)
        return thing


class Cupy(Api):
    """CuPy on an NVIDIA device."""

    name = "cupy"
    asynchronous = True
    on_cores = False

    def __init__(self) -> None:
        self._cupy = extras.need("cupy")
        try:
            count = self._cupy.cuda.runtime.getDeviceCount()
        except RuntimeError:
            count = 0
        if not count:
            raise extras.MissingPackage("cupy needs a CUDA device, and it sees none")

    def stream(self) -> Stream:
        """A new CUDA stream that does not wait for the default one."""
        return CupyStream(self._cupy)
