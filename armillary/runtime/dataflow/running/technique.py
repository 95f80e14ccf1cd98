"""What all techniques of this arena have: how they open APIs and run laps, and how they play a described program."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from armillary.arena import Technique
from armillary.runtime.dataflow.simulation.play import Rules

if TYPE_CHECKING:
    from armillary.runtime.dataflow.applications.application import Application
    from armillary.runtime.dataflow.awareness.apis import Apis

    from .laps import Laps

Lap = Callable[[], tuple[float, Any]]


@dataclass(frozen=True)
class Setting:
    """Where an application runs: how many workers, and the simulated device if its kernels use one."""

    workers: int
    concurrency: int = 8


class DataFlow(Technique):
    """A way to run a program of kernels."""

    #: How a described program is played, or None if the technique needs the real kernels.
    rules: ClassVar[Rules | None] = None

    def run(self, app: Application, setting: Setting, count: int) -> Laps:
        """`count` laps of the application, each from its data at the start."""
        from .laps import laps

        with self.lap(app, setting) as lap:
            return laps(app, lap, count)

    @contextmanager
    def lap(self, app: Application, setting: Setting) -> Iterator[Lap]:
        """A function that runs the application once."""
        raise NotImplementedError(type(self).__name__)
        yield


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def opened(names: tuple[str, ...], setting: Setting, *, threads: int | None, width: int | None = None, **how: Any) -> Iterator[Apis]:
    """The APIs of a program; each library may use `threads` threads (None: its full pool), and OpenCL parts of `width` units."""
    from armillary.runtime.dataflow.apis.sim import Sim
    from armillary.runtime.dataflow.awareness.apis import Apis, adapter

    made = [
        Sim(concurrency=setting.concurrency) if name == "sim" else kept_opencl(width) if name == "opencl" else adapter(name)
        for name in names
    ]  # fmt: skip
    apis = Apis(*made, threads=threads, **how)
    try:
        apis.limit(threads)
        yield apis
    finally:
        apis.close()
        apis.limit(None)


_opencl: dict[int | None, Any] = {}


def kept_opencl(width: int | None) -> Any:
    """OpenCL with its compiled programs, which are kept because compiling takes longer than most laps."""
    from armillary.runtime.dataflow.apis.opencl import OpenCl

    if width not in _opencl:
        _opencl[width] = OpenCl(width)
    _opencl[width].waited = 0.0
    return _opencl[width]
