"""`forkjoin`: stages one after the other, everything inside a stage side by side, and a barrier at its end.

A stage holds the kernels of one depth in the data flow, which is what a careful person writes with parallel loops: device kernels are
enqueued first, host kernels are spread over threads in equal shares, and libraries keep to one thread each. The slowest kernel of a stage
decides when the next one begins.

The model of OpenMP, 1997.
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
class ForkJoin(DataFlow):
    """Parallel inside a stage, with a barrier after it."""

    rules: ClassVar[Rules | None] = Rules(barriers=True)

    @contextmanager
    def lap(self, app: Application, setting: Setting) -> Iterator[Lap]:
        """Runs stage by stage on one team of threads."""
        from .running.ways import Team

        with opened(app.apis, setting, threads=1) as apis:
            team = Team(setting.workers)
            try:
                yield partial(team.stage_by_stage, apis, app.operations)
            finally:
                team.close()
