"""`dask`: the same data flow as a Dask graph on `dask.threaded`, as people who know Dask would write it.

The bodies wait for the device, because Dask ends a task when its function returns. Libraries keep to one thread each.

Rocklin, Dask: parallel computation with blocked algorithms and task scheduling, 2015.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from armillary import extras

from .running.technique import DataFlow, Lap, Setting, opened

if TYPE_CHECKING:
    from .applications.application import Application


@dataclass(frozen=True)
class Dask(DataFlow):
    """dask.threaded."""

    @contextmanager
    def lap(self, app: Application, setting: Setting) -> Iterator[Lap]:
        """Builds Dask's graph and runs it."""
        extras.need("dask")
        from dask.threaded import get

        from .running.ways import dask_graph

        with opened(app.apis, setting, threads=1) as apis:
            yield partial(dask_graph, apis, app.operations, setting.workers, get)
