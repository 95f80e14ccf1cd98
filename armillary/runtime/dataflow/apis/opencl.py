"""OpenCL: kernels from source in in-order queues, on a device that shares the host's memory.

Arrays are passed by their host pointer (`CL_MEM_USE_HOST_PTR`), never copied, so the device must share the host's memory, as PoCL's CPU
device and integrated GPUs do. A queue has kernel objects of its own, because an object holds its arguments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary import extras
from armillary.errors import InputError

from . import pocl
from .api import Api, DeviceError, Kernel, Stream

#: Kernel names to source are compiled once per process and width.
OPTIONS = "-cl-std=CL1.2"
#: Arrays whose buffers are kept for the next kernel.
MOST_BUFFERS = 4096
HEAD = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n#pragma OPENCL FP_CONTRACT OFF\n"


@dataclass(frozen=True)
class ClSource:
    """An OpenCL kernel: its source with one `__kernel` named `entry`, and how many work items its arguments take.

    `items(*args)` gives the global size, or (global size, local size). Arrays become buffers; Python integers become `int` and floats
    become `double`, or `float` with `single=True`.
    """

    source: str
    entry: str
    items: Callable[..., tuple[int, ...] | tuple[tuple[int, ...], tuple[int, ...]]]
    single: bool = False


class ClEvent:
    """The end of one kernel in its queue."""

    __slots__ = ("_cl", "event", "keep")

    def __init__(self, cl: Any, event: Any, keep: Any) -> None:
        self._cl, self.event, self.keep = cl, event, keep

    def done(self) -> bool:
        """Asks for the state of the command, which is 0 when it is complete and negative when it failed."""
        status = self.event.command_execution_status
        if status < 0:
            raise DeviceError(f"an OpenCL kernel ended with status {status}")
        return bool(status == 0)

    def wait(self) -> None:
        """Waits in the OpenCL library."""
        try:
            self.event.wait()
        except self._cl.Error as error:
            raise DeviceError(str(error)) from error
        self.done()


class ClStream:
    """One in-order queue."""

    def __init__(self, api: OpenCl, device: Any) -> None:
        self._api = api
        self._queue = api.cl.CommandQueue(api.context, device)
        self._kernels: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()

    def enqueue(self, kernel: Kernel, args: tuple[Any, ...]) -> ClEvent:
        """Sets the arguments and enqueues the kernel behind the last one."""
        source: ClSource = kernel.variant("opencl")
        api = self._api
        size = source.items(*args)
        glob, local = size if size and isinstance(size[0], tuple) else (size, None)
        with self._lock:
            made = self._kernels.get((source.source, source.entry))
            if made is None:
                made = self._kernels[source.source, source.entry] = api.cl.Kernel(api.program(source), source.entry)
            made.set_args(*(api.argument(a, source.single) for a in args))
            event = api.cl.enqueue_nd_range_kernel(self._queue, made, glob, local)
            self._queue.flush()
        return ClEvent(api.cl, event, args)


class OpenCl(Api):
    """One OpenCL device that shares the host's memory; PoCL's if there is no other.

    With `width` the device is cut into parts of so many compute units, which bounds the threads of a kernel; None leaves it whole.
    """

    name = "opencl"
    asynchronous = True

    def __init__(self, width: int | None = None) -> None:
        cl: Any = extras.need("pyopencl")
        self.cl = cl
        #: The device, or its parts of `width` compute units each; streams take them in turn.
        self.devices = _devices(cl, width)
        self.context = cl.Context(self.devices)
        self._streams = 0
        self._programs: dict[str, Any] = {}
        self._buffers: dict[int, tuple[np.ndarray, Any]] = {}
        self._lock = threading.RLock()

    def stream(self) -> Stream:
        """A new in-order queue."""
        self._streams += 1
        return ClStream(self, self.devices[self._streams % len(self.devices)])

    def program(self, source: ClSource) -> Any:
        """The compiled source."""
        with self._lock:
            if source.source not in self._programs:
                self._programs[source.source] = _built(self.cl, self.context, source.source)
            return self._programs[source.source]

    def argument(self, thing: Any, single: bool = False) -> Any:
        """What OpenCL takes for an argument: a buffer on the array's own memory, or a number of the kernel's type."""
        if isinstance(thing, np.ndarray):
            return self._buffer(thing)
        if isinstance(thing, bool | int | np.integer):
            return np.int32(thing)
        if isinstance(thing, float | np.floating):
            return np.float32(thing) if single else np.float64(thing)
        raise InputError(
            f"found an argument of type {type(thing).__name__}, which OpenCL cannot share; expected NumPy arrays and numbers",
            where="launch",
        )

    def _buffer(self, array: np.ndarray) -> Any:
        kept = self._buffers.get(id(array))
        if kept is not None and kept[0] is array:
            return kept[1]
        if not array.flags.c_contiguous or not array.flags.writeable:
            raise InputError("found an array that is not contiguous or cannot be written; OpenCL shares whole arrays", where="launch")
        flags = self.cl.mem_flags
        with self._lock:
            if len(self._buffers) >= MOST_BUFFERS:
                # Kernels in flight keep theirs.
                self._buffers.clear()
            made = self.cl.Buffer(self.context, flags.READ_WRITE | flags.USE_HOST_PTR, hostbuf=array)
            self._buffers[id(array)] = (array, made)
        return made

    def notify(self, event: Any, call: Callable[[], object]) -> bool:
        """Registers a completion callback."""
        event.event.set_callback(self.cl.command_execution_status.COMPLETE, lambda status: call())
        return True

    def close(self) -> None:
        """Forgets the buffers."""
        self._buffers.clear()


def _devices(cl: Any, width: int | None) -> list[Any]:
    try:
        devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error:
        devices = []
    shared = [device for device in devices if device.host_unified_memory]
    if not shared:
        found = f"found {', '.join(d.name for d in devices)}" if devices else "found no device"
        raise extras.MissingPackage(f"opencl: {found}; expected one that shares the host's memory (pip install pocl-binary-distribution)")
    device = shared[0]
    _ready(cl, device)
    if width is None or width >= device.max_compute_units:
        return [device]
    return list(device.create_sub_devices([cl.device_partition_property.EQUALLY, width]))


def _ready(cl: Any, device: Any) -> None:
    """Makes sure that the device can build programs at all."""
    if "pthread" in device.name and device.platform.name.startswith("Portable"):
        try:
            cl.Program(cl.Context([device]), "__kernel void nothing(__global int* a) { a[0] = 0; }").build()
        except cl.RuntimeError as error:
            if "unknown target CPU 'generic'" not in str(error) or not pocl.repair(device):
                raise extras.MissingPackage("opencl: PoCL cannot build programs for this processor; take a newer release") from error


def _built(cl: Any, context: Any, source: str) -> Any:
    try:
        return cl.Program(context, HEAD + source).build(options=OPTIONS)
    except cl.RuntimeError as error:
        raise InputError(f"OpenCL does not take the kernel: {str(error).splitlines()[-1][:200]}") from error
