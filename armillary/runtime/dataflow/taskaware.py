"""`taskaware`: a device kernel is a task that ends when the device has ended it, and no host thread waits meanwhile.

A task's body enqueues its kernel in a stream of a pool and returns. A polling service asks the streams' first events, without waiting, and
completes the task; then its successors start, on whichever API. Kernels that follow one another in one stream are enqueued before their
predecessors end, so that the device goes on without the host (`chain`). Buffers pass by host pointer.

The paper's libraries are TASYCL and TACUDA over OmpSs-2 and nOS-V. The pool of 8 streams, the polling periods and the rule for chains are
our design.

A task-based data-flow methodology for programming heterogeneous systems with multiple accelerator APIs, arXiv:2602.21897.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from armillary.arena import Claim, Gain, Kind, Level, Parity, parameter

from .running.technique import DataFlow, Lap, Setting, opened
from .simulation.play import Rules

if TYPE_CHECKING:
    from .applications.application import Application

PERIODS = {"adaptive": None, "50us": 50e-6, "1ms": 1e-3}
APPLICATIONS = tuple(Kind(name) for name in ("cholesky", "heat", "nbody", "block", "mix"))


@dataclass(frozen=True)
class TaskAware(DataFlow):
    """Task-aware libraries."""

    chain: bool = parameter(True, "whether a kernel may be enqueued behind unfinished kernels of one stream")
    poll: str = parameter("adaptive", "how often pending kernels are looked at", choices=tuple(PERIODS))
    notify: str = parameter("poll", "whether the end of a kernel is found by polling or told by a callback", choices=("poll", "callback"))
    streams: int = parameter(8, "streams per API", range=(1, 256))

    rules: ClassVar[Rules | None] = Rules()
    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "makespan", over=("single-api", "forkjoin", "dask"), by=Gain(ratio=(0.95, None)), on=APPLICATIONS, source="our level",
            says="mixing the best kernel of each API as one data flow is at least as fast as any one API, fork-join or Dask",
        ),
        Claim(
            "makespan", over=("sequential", "forkjoin", "blocking", "single-api", "dask"), by=Gain(ratio=(0.95, None)), on=APPLICATIONS,
            source="our design", says="and at least as fast as every other way that knows nothing of devices, program order included",
        ),
        Claim(
            "makespan", over="blocking", by=Gain(ratio=(1.2, None)), on=(Kind("mix", "few-workers"), Kind("block", "few-workers")),
            source="our level", says="tasks that wait for the device are 1.2 times as slow where workers are at most half the chains",
        ),
        Claim(
            "makespan", over="blocking", by=Gain(ratio=(1.2, None)), on=Kind("far-device", "few-workers"), source="our level",
            says="the same on a device that is not this machine's cores",
            stand_in="a device that takes time and computes nothing",
        ),
        Claim(
            "overhead", by=Level(at_most=20.0), on=Kind("empty"), source="our level",
            says="a task around a kernel costs at most 20 µs more than enqueuing it bare",
        ),
        Claim(
            "makespan", over="blocking", by=Parity(within=0.03), on=Kind("misfit"), source="our level",
            says="with one API, long kernels and a worker per chain it makes no difference",
        ),
        Claim(
            "makespan", over="dask", by=Gain(ratio=(1.5, None)), on=Kind("heat"), source="our level",
            says="fine tasks run 1.5 times as fast as on dask.threaded",
        ),
    )  # fmt: skip

    @contextmanager
    def lap(self, app: Application, setting: Setting) -> Iterator[Lap]:
        """Builds the graph and runs it."""
        from .running.ways import aware_graph

        with opened(app.apis, setting, **self.how()) as apis:
            yield partial(aware_graph, apis, app, app.operations, setting.workers)

    def how(self) -> dict[str, Any]:
        """How the APIs are opened: one thread per call."""
        return {
            "threads": 1, "chain": self.chain, "period": PERIODS[self.poll], "notify": self.notify, "pool": self.streams,
        }  # fmt: skip
