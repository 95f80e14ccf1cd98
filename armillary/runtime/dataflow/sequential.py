"""`sequential`: the program as it is written, one kernel after the other.

Nothing overlaps, and nothing is scheduled: for kernels of some microseconds that is hard to beat. The host waits for each device kernel.
Libraries keep all their threads or one each, whichever two trial laps before the clock starts show to be faster, as a careful person sets
it.

Goto and van de Geijn, Anatomy of high-performance matrix multiplication, 2008, for what a library does with all its threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from .running.technique import DataFlow, Lap, Setting, opened
from .simulation.play import Rules
from .single_api import trial

if TYPE_CHECKING:
    from .applications.application import Application

#: What was faster, by application and sizes, so that repeats of a case do not try again.
_fastest: dict[tuple[str, int], int | None] = {}


@dataclass(frozen=True)
class Sequential(DataFlow):
    """Program order, synchronous."""

    rules: ClassVar[Rules | None] = Rules(ordered=True)

    @contextmanager
    def lap(self, app: Application, setting: Setting) -> Iterator[Lap]:
        """Runs the operations in order."""
        from .running.ways import in_order

        threads = self.threads_for(app, setting)
        with opened(app.apis, setting, threads=threads) as apis:
            yield partial(in_order, apis, app.operations)

    def threads_for(self, app: Application, setting: Setting) -> int | None:
        """One thread per call, or None for full pools."""
        from .running.ways import in_order

        key = (app.label, len(app.operations))
        if key not in _fastest:
            took: dict[int | None, float] = {}
            for threads in (1, None):
                with opened(app.apis, setting, threads=threads) as apis:
                    took[threads] = trial(app, partial(in_order, apis, app.operations), min(took.values(), default=math.inf))
            _fastest[key] = min(took, key=lambda one: took[one])
        return _fastest[key]
