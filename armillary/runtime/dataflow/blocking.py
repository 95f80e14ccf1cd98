"""`blocking`: a data-flow graph whose bodies wait for the device, which is what tasks around an unaware library do.

The order is as free as the data allows, but a worker that waits for a device runs nothing else, so at most as many device kernels are out
as there are workers.

Duran and others, OmpSs: a proposal for programming heterogeneous multi-core architectures, 2011, is such a runtime.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from .running.technique import DataFlow, Lap, Setting, opened
from .simulation.play import Rules

if TYPE_CHECKING:
    from .applications.application import Application


@dataclass(frozen=True)
class Blocking(DataFlow):
    """Data-flow tasks that wait for the device."""

    rules: ClassVar[Rules | None] = Rules(holds_worker=True)

    @contextmanager
    def lap(self, app: Application, setting: Setting) -> Iterator[Lap]:
        """Builds the graph and runs it."""
        from .running.ways import blocking_graph

        with opened(app.apis, setting, threads=1) as apis:
            yield partial(blocking_graph, apis, app, app.operations, setting.workers)
