"""`single-api`: every kernel on one API, in the way that suits that API, and of all APIs the fastest.

An asynchronous API gets the whole program in one queue, with one wait at the end. A synchronous one is tried twice: in program order with
all its threads, and as a data-flow graph whose workers call it with one thread each. Which one is fastest is found out by two trial laps
of each before the clock starts; an application whose kernels no single API offers is declined.

The in-order queue is that of OpenCL 1.0, 2008.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from armillary.arena import NotForThisCase
from armillary.errors import InputError

from .running.technique import DataFlow, Lap, Setting, opened

if TYPE_CHECKING:
    from .applications.application import Application, Operation

#: What was fastest, by application, sizes and workers, so that repeats of a case do not try again.
_best: dict[tuple[str, int, int], tuple[str, str]] = {}
#: A first trial that takes so many times the best one is the last of its kind.
HOPELESS = 20


@dataclass(frozen=True)
class SingleApi(DataFlow):
    """The best of one API for all kernels."""

    @contextmanager
    def lap(self, app: Application, setting: Setting) -> Iterator[Lap]:
        """Picks the API and yields its lap."""
        if "sim" in app.apis and len(app.apis) > 1:
            raise NotForThisCase("the simulated device's kernels compute nothing, so that no other API does the same work")
        if not app.everywhere:
            raise NotForThisCase("no single API offers all kernels of this application")
        api, way = fastest(app, setting)
        with _way(app, app.on(api), setting, api, way) as lap:
            yield lap


def fastest(app: Application, setting: Setting) -> tuple[str, str]:
    """The API and the way that took the shortest trial lap."""
    key = (app.label, len(app.operations), setting.workers)
    if key not in _best:
        took: dict[tuple[str, str], float] = {}
        for api in app.everywhere:
            for way in ways_of(app, api):
                try:
                    with _way(app, app.on(api), setting, api, way) as lap:
                        took[api, way] = trial(app, lap, min(took.values(), default=math.inf))
                except InputError:
                    # Its package is not here, so that nobody here would take it.
                    continue
        if not took:
            raise NotForThisCase(f"none of {', '.join(app.everywhere)} is here")
        _best[key] = min(took, key=lambda one: took[one])
    return _best[key]


def ways_of(app: Application, api: str) -> Sequence[str]:
    """How an API may be used for the whole program."""
    # The simulated device computes nothing, so it is no answer for a program whose kernels have to.
    if api == "sim":
        return ("queues",) if app.apis == ("sim",) else ()
    return ("queue", "queues") if api == "opencl" else ("order", "graph")


@contextmanager
def _way(app: Application, operations: Sequence[Operation], setting: Setting, api: str, way: str) -> Iterator[Lap]:
    from .running.ways import aware_graph, in_order, in_queue

    with opened((api,), setting, threads=None if way == "order" else 1) as apis:
        if way == "order":
            yield partial(in_order, apis, operations)
        elif way == "queue":
            yield partial(in_queue, apis, operations)
        else:
            yield partial(aware_graph, apis, app, operations, setting.workers)


def trial(app: Application, lap: Lap, best: float) -> float:
    """The shorter of two laps, the first of which may compile; one that is hopeless is not run again."""
    first = timed(app, lap)
    return first if first > HOPELESS * best else min(first, timed(app, lap))


def timed(app: Application, lap: Lap) -> float:
    """Seconds of one lap."""
    app.reset()
    began = time.perf_counter()
    lap()
    return time.perf_counter() - began
