"""What calls cost Python on one kind of GPU: stored with their sources, or measured on the GPU of this machine in a few seconds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from armillary import extras
from armillary.errors import InputError

_CALLS, _ROUNDS = 200, 7


@dataclass(frozen=True)
class HostCosts:
    """Seconds that Python on the host takes for one call of each kind, and that a device adds; `device` is the GPU they belong to."""

    device: str
    #: Launching a kernel with arguments that are ready.
    launch_s: float
    #: Launching a captured graph.
    graph_s: float
    #: Seeing an array through another library.
    convert_s: float
    #: Slicing a view.
    slice_s: float
    #: Putting one argument of a launch together.
    argument_s: float
    #: Recording an event and letting a stream wait for it.
    event_s: float
    #: Returning from a synchronisation when the stream is done.
    sync_s: float
    #: One call of MPI, and the copy that a library which knows GPUs launches for a message.
    mpi_s: float
    copy_s: float
    #: A group of NCCL: on the host, and on the device before bytes move.
    group_s: float
    group_device_s: float
    #: One step of NCCL's ring over NVLink.
    ring_device_s: float
    #: The shortest kernel.
    kernel_s: float


_DRIVER = "a launch through the driver takes 4 to 6 us, measured on an RTX 5070 Ti (susun-blog.com, pegainfer 3); the mean"
_HERE = "measured on a CPU core of this project with arrays on the host, as a stand-in"
_NCCL = "NCCL's own tuning table, ring with protocol LL over NVLink (NVIDIA/nccl issue 1334)"
#: Where each constant of the stored costs comes from.
SOURCES = {
    "launch_s": "a launch by CuPy takes 25 us (numba/numba issue 3003, 2018)", "graph_s": _DRIVER, "event_s": _DRIVER,
    "sync_s": _DRIVER, "copy_s": _DRIVER,
    "group_s": "a launch by CuPy, because a group is one kernel", "convert_s": f"numpy.from_dlpack of a tensor, {_HERE}",
    "slice_s": f"a slice of a tensor, {_HERE}", "argument_s": f"an array of four numbers, {_HERE}", "mpi_s": f"a call of mpi4py, {_HERE}",
    "group_device_s": _NCCL, "ring_device_s": _NCCL, "kernel_s": "Armillary default: no vendor figure",
}  # fmt: skip
STORED = {
    "h100-80": HostCosts("h100-80", 25e-6, 5e-6, 5e-6, 4.9e-6, 0.7e-6, 5e-6, 5e-6, 1e-6, 5e-6, 25e-6, 6.6e-6, 0.6e-6, 2e-6),
}  # fmt: skip


def longer(costs: HostCosts, factor: float) -> HostCosts:
    """Return costs of a slower or quicker interpreter: what the host does takes `factor` times as long."""
    hosts = ("launch_s", "graph_s", "convert_s", "slice_s", "argument_s", "event_s", "sync_s", "mpi_s", "copy_s", "group_s")
    return replace(costs, **{name: factor * getattr(costs, name) for name in hosts})


def measured_costs() -> HostCosts:
    """Return the costs of the first GPU of this machine; what only several GPUs show (groups, rings) is taken from the stored costs.

    They carry the name that CUDA gives the device, so they are never used for another GPU.
    """
    torch = extras.need("torch")
    if not torch.cuda.is_available():
        raise InputError("StreamModel.measured: found no GPU that PyTorch can use; expected one, or StreamModel.stored with its name")
    name = str(torch.cuda.get_device_name(0))
    x = torch.zeros(64, 64, dtype=torch.float64, device="cuda")
    stream, event = torch.cuda.current_stream(), torch.cuda.Event()
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x.add_(1.0)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=side):
        x.add_(1.0)

    def recorded() -> None:
        event.record(stream)
        side.wait_event(event)

    def timed(call: Callable[[], Any]) -> float:
        found = []
        for _ in range(_ROUNDS):
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(_CALLS):
                call()
            found.append((time.perf_counter() - began) / _CALLS)
        return statistics.median(found)

    known = next(iter(STORED.values()))
    launch = timed(lambda: x.add_(1.0))
    return HostCosts(
        name, launch, timed(graph.replay), timed(lambda: torch.from_dlpack(x)), timed(lambda: x[2:4, 2:-2]),
        timed(lambda: [0, 1, 0, 1]), timed(recorded), timed(stream.synchronize), known.mpi_s, launch, launch, known.group_device_s,
        known.ring_device_s, known.kernel_s,
    )  # fmt: skip
