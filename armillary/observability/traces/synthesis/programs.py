"""A simulated program: ranks with one device each, whose hosts launch kernels, copies and collectives, and wait.

Every rank runs the same operations in the same order. A host goes on as soon as a call returns, so it runs ahead of its device unless it
waits; a device runs the activities of a stream one after another. A collective kernel starts when its own rank reaches it, and ends on all
ranks together. A knob is an inefficiency that can be left out, so that what it costs is the difference of two simulations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.kernels import loop

Numbers = npt.NDArray[np.int64]

WORK, LAUNCH, COPY, COLLECTIVE, SYNC, WAIT, ALLREDUCE, PUSH, POP = range(9)
#: Nanoseconds from the end of a launching call to the earliest start of what it launched, and of usual calls.
LATENCY_NS, CALL_NS, SYNC_NS = 1_500, 2_000, 5_000
#: How much later than the first rank others leave a collective, on average.
LEAVING_NS = 300.0
COMPUTE, SECOND, COPIES, COMMUNICATION = 7, 13, 16, 20
KERNELS = (
    "gemm_f16_128x128", "gemm_f16_256x64", "softmax_warp_forward", "layer_norm_kernel", "vectorized_elementwise_kernel", "reduce_kernel",
)  # fmt: skip
NCCL, HOST_TO_DEVICE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "CUDA memcpy Host-to-Device"
CAUSES = ("imbalance", "transfers", "communication", "launch", "host", "sync")


@dataclass(frozen=True)
class Design:
    """A program. Times are nanoseconds per iteration, call or kernel; `off` are the knobs that are left out."""

    ranks: int = 8
    iterations: int = 10
    kernels: int = 120
    kernel_ns: float = 40_000.0
    #: Knobs: what the slowest rank's kernels take beyond the mean, copies and collectives on the compute stream, calls that launch, work
    #: of the host, and waits of the host after every `sync_every` kernels, which return so much later than the device is done.
    imbalance: float = 0.0
    transfers: float = 0.0
    communication: float = 30_000.0
    launch: float = 0.0
    host: float = 0.0
    sync: float = 0.0
    sync_every: int = 4
    #: Whether only one rank is slow; otherwise each rank is slower than the one before it.
    straggler: bool = False
    #: Parts that cost nothing: collectives and copies beside compute, hosts that wait once per iteration, and a second compute stream.
    overlapped_communication: float = 0.0
    overlapped_copies: float = 0.0
    patient: bool = False
    streams: int = 1
    #: Whether ranks meet in MPI on the host rather than in kernels of NCCL.
    by_mpi: bool = False
    jitter: float = 0.02
    #: A kernel, by its number among `KERNELS`, that takes `slower_by` times as long.
    slower: int = -1
    slower_by: float = 1.0

    def without(self, cause: str) -> Design:
        """The same program without one of its knobs."""
        return self.having(cause, 0.0)

    def having(self, cause: str, cost: float) -> Design:
        """The same program with one of its knobs at `cost`."""
        changed: dict[str, Any] = {cause: cost}
        return replace(self, **changed)


@dataclass(frozen=True)
class Timeline:
    """What happened: the operations, and for each rank and operation the times on the host and on the device (ns; -1: none)."""

    operation: Numbers
    stream: Numbers
    name: Numbers
    host_start: Numbers
    host_end: Numbers
    device_start: Numbers
    device_end: Numbers

    @property
    def elapsed(self) -> int:
        """Nanoseconds from the first to the last activity of any device."""
        ran = self.device_start >= 0
        return int(self.device_end.max() - self.device_start[ran].min())

    @property
    def events(self) -> int:
        """The number of calls, activities and ranges."""
        calls = np.isin(self.operation, (LAUNCH, COPY, COLLECTIVE, SYNC, WAIT, ALLREDUCE, PUSH)).sum()
        return int(self.host_start.shape[0] * (calls + np.isin(self.operation, (LAUNCH, COPY, COLLECTIVE)).sum()))


def operations(design: Design) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """(operation, stream, number of the kernel's name, iteration's kernel) of all operations of a rank."""
    rows: list[tuple[int, int, int, int]] = []
    for _ in range(design.iterations):
        rows.append((PUSH, 0, 0, 0))
        if design.host:
            rows.append((WORK, 0, 0, 0))
        if design.transfers:
            rows.append((COPY, COMPUTE, 0, 0))
        if design.overlapped_copies:
            rows.append((COPY, COPIES, 0, 1))
        for k in range(design.kernels):
            if design.overlapped_communication and k == design.kernels // 4:
                rows.append((COLLECTIVE, COMMUNICATION, 0, 1))
            rows.append((LAUNCH, SECOND if design.streams == 2 and k % 2 else COMPUTE, k % len(KERNELS), k))
            if design.sync and (k + 1) % design.sync_every == 0:
                rows.append((SYNC, 0, 0, 0))
        if design.streams == 2:
            rows.append((WAIT, COMPUTE, SECOND, 0))
        if design.overlapped_communication:
            rows.append((WAIT, COMPUTE, COMMUNICATION, 0))
        if design.by_mpi:
            rows += [(SYNC, 0, 0, 1), (ALLREDUCE, 0, 0, 0)]
        else:
            rows.append((COLLECTIVE, COMPUTE, 0, 0))
        if design.streams == 2:
            rows.append((WAIT, SECOND, COMPUTE, 0))
        if design.patient:
            rows.append((SYNC, 0, 0, 1))
        rows.append((POP, 0, 0, 0))
    rows.append((SYNC, 0, 0, 1))
    operation, stream, name, number = np.array(rows, np.int64).T
    return operation, stream, name, number


def simulated(design: Design, seed: int) -> Timeline:
    """The timeline of a program; the durations of its kernels depend on the seed and not on the knobs."""
    operation, stream, name, number = operations(design)
    rng = np.random.Generator(np.random.PCG64DXSM(seed))
    usual = rng.uniform(0.5, 1.5, design.kernels)
    usual *= design.kernel_ns / usual.mean()
    noise = rng.normal(0.0, design.jitter, (design.ranks, design.iterations * design.kernels))
    launches = np.flatnonzero(operation == LAUNCH)
    duration = np.zeros((design.ranks, len(operation)))
    duration[:, launches] = usual[number[launches]] * np.maximum(0.2, 1.0 + noise)
    duration[:, launches] *= slowness(design)[:, None] * np.where(name[launches] == design.slower, design.slower_by, 1.0)
    for kind, amount in ((WORK, design.host), (ALLREDUCE, design.communication)):
        duration[:, operation == kind] = amount
    for kind, beside, own in ((COPY, design.overlapped_copies, design.transfers),
                              (COLLECTIVE, design.overlapped_communication, design.communication)):  # fmt: skip
        duration[:, operation == kind] = np.where(number[operation == kind] == 1, beside, own)
    met = np.flatnonzero((operation == COLLECTIVE) | (operation == ALLREDUCE))
    # Ranks do not leave a collective at exactly the same moment.
    duration[:, met] += rng.exponential(LEAVING_NS, (design.ranks, len(met)))
    duration[:, operation == SYNC] = np.where(number[operation == SYNC] == 1, SYNC_NS, design.sync)
    call = np.full(len(operation), CALL_NS, np.int64)
    call[np.isin(operation, (WORK, PUSH, POP, ALLREDUCE))] = 0
    if design.launch:
        call[operation == LAUNCH] = round(design.launch)
    times = np.full((4, design.ranks, len(operation)), -1, np.int64)
    _play(operation, stream, name, np.rint(duration).astype(np.int64), call, times)
    return Timeline(operation, stream, name, *times)


def slowness(design: Design) -> npt.NDArray[np.float64]:
    """The factor on each rank's kernels, with mean 1; the slowest has 1 + imbalance."""
    n = design.ranks
    if n == 1 or not design.imbalance:
        return np.ones(n)
    if design.straggler:
        rest = 1.0 - design.imbalance / (n - 1)
        return np.where(np.arange(n) == n // 2, 1.0 + design.imbalance, rest)
    return 1.0 + design.imbalance * np.linspace(-1.0, 1.0, n)


@loop
def _play(operation: Numbers, stream: Numbers, name: Numbers, duration: Numbers, call: Numbers, times: Numbers) -> None:
    ranks = duration.shape[0]
    host = np.zeros(ranks, np.int64)
    free = np.zeros((ranks, 32), np.int64)
    for k in range(len(operation)):
        kind = operation[k]
        last = np.int64(0)
        for r in range(ranks):
            times[0, r, k] = host[r]
            if kind == WORK:
                host[r] += duration[r, k]
            elif kind in (LAUNCH, COPY, COLLECTIVE):
                host[r] += call[k]
                start = max(host[r] + LATENCY_NS, free[r, stream[k]])
                times[2, r, k] = start
                last = max(last, start)
                free[r, stream[k]] = start + duration[r, k]
                times[3, r, k] = free[r, stream[k]]
            elif kind == SYNC:
                done = np.int64(0)
                for s in range(32):
                    done = max(done, free[r, s])
                host[r] = max(host[r] + call[k], done + duration[r, k])
            elif kind == WAIT:
                host[r] += call[k]
                free[r, stream[k]] = max(free[r, stream[k]], free[r, name[k]])
            elif kind == ALLREDUCE:
                last = max(last, host[r])
            times[1, r, k] = host[r]
        if kind in (COLLECTIVE, ALLREDUCE):
            for r in range(ranks):
                end = last + duration[r, k]
                if kind == COLLECTIVE:
                    free[r, stream[k]] = end
                    times[3, r, k] = end
                else:
                    host[r] = end
                    times[1, r, k] = end
