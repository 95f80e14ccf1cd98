"""Which backends a pilot on this machine should have: each is measured for a moment, and a formula decides before anything is spent.

A backend's launch cost is measured with null tasks, one after another (its latency) and many at once (its rate and, with it, how many it
runs at a time). The seconds that work would take are its start plus the greatest of tasks/rate and of the tasks' seconds on the cores.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

from armillary.cluster.local_slurm import lacking
from armillary.errors import InputError
from armillary.runtime.pilot.backends.backend import EXECUTABLE, FUNCTION
from armillary.runtime.pilot.backends.slurm import Slurm

from .pilot import ROUTES, Pilot

#: Null tasks that are under way at a time while a rate is measured.
AT_ONCE = 64


def nothing() -> None:
    """The body of a probe."""


@dataclass(frozen=True)
class Cost:
    """One backend with one kind of task: seconds of its start, seconds for a lone task, and tasks per second of many."""

    backend: str
    kind: int
    start_s: float
    lone_s: float
    per_s: float


@dataclass(frozen=True)
class Chosen:
    """The backends for some work and the seconds that they are predicted to take, their start not counted."""

    backends: list[str]
    makespan: float
    start_s: float
    said: str


@dataclass(frozen=True)
class Measured:
    """What each present backend costs here, and why others are missing."""

    costs: list[Cost]
    absent: dict[str, str]
    cores: int

    def choose(self, executables: int = 0, functions: int = 0, seconds: float = 0.0) -> Chosen:
        """The backends with the least predicted start plus makespan for equal tasks of one core."""
        picked: dict[int, Cost] = {}
        texts = []
        for kind, count, noun in ((EXECUTABLE, executables, "executables"), (FUNCTION, functions, "functions")):
            able = [cost for cost in self.costs if cost.kind == kind]
            if not count:
                continue
            if not able:
                raise InputError(f"no backend here starts {noun}; {'; '.join(f'{name}: {why}' for name, why in self.absent.items())}")
            took = {cost.backend: cost.start_s + self._seconds(cost, count, seconds) for cost in able}
            picked[kind] = min(able, key=lambda cost: took[cost.backend])
            best = picked[kind]
            others = [took[name] for name in took if name != best.backend]
            less = f", {100 * (1 - took[best.backend] / min(others)):.0f} % less than the next" if others and min(others) > 0 else ""
            texts.append(f"{noun} by {best.backend}: {best.per_s:,.0f} per second, {took[best.backend]:.3g} s{less}")
        counts = {EXECUTABLE: executables, FUNCTION: functions}
        launch = sum(counts[kind] / cost.per_s for kind, cost in picked.items())
        waves = -(-(executables + functions) // self.cores) * seconds
        makespan = max(launch, waves) + max((cost.lone_s for cost in picked.values()), default=0.0)
        start = max((cost.start_s for cost in picked.values()), default=0.0)
        return Chosen(list(dict.fromkeys(cost.backend for cost in picked.values())), makespan, start, "; ".join(texts))

    def _seconds(self, cost: Cost, count: int, seconds: float) -> float:
        return max(count / cost.per_s, -(-count // self.cores) * seconds) + cost.lone_s


def measure_backends(
    names: tuple[str, ...] = ("local", "srun", "pool", "dask"), *, seconds: float = 2.0, nodes: int = 1, cores: int | None = None
) -> Measured:
    """Measures each named backend for so many seconds per kind of task; where Slurm answers nowhere, a local one is started for `srun`."""
    costs: list[Cost] = []
    absent: dict[str, str] = {}
    places = 0
    for name in names:
        slurm: Slurm | None = None
        try:
            if name == "srun":
                if missing := lacking():
                    raise InputError(f"found no {missing}")
                slurm = Slurm.local(nodes, cores or 8)
            began = time.monotonic()
            with Pilot(nodes, [name], cores=cores, slurm=slurm, rows=0) as pilot:
                pilot.wait_ready(60)
                start = time.monotonic() - began
                places = max(places, pilot.nodes * pilot.cores)
                kinds = [kind for kind in (EXECUTABLE, FUNCTION) if name in ROUTES[kind]]
                costs.extend(Cost(name, kind, start, *_probe(pilot, kind, seconds)) for kind in kinds)
        except (InputError, ImportError, TimeoutError) as error:
            absent[name] = str(error)
        finally:
            if slurm is not None:
                slurm.close()
    return Measured(costs, absent, max(1, places))


def _probe(pilot: Pilot, kind: int, seconds: float) -> tuple[float, float]:
    """(seconds for a lone task, tasks per second of many)."""

    def one() -> Future[Any]:
        return pilot.launch(["true"]) if kind == EXECUTABLE else pilot.submit(nothing)

    one().result()
    began = time.monotonic()
    lone = 0
    while lone < 3 or time.monotonic() - began < seconds / 4:
        one().result()
        lone += 1
    each = (time.monotonic() - began) / lone
    began, ended, under_way = time.monotonic(), 0, {one() for _ in range(AT_ONCE)}
    while time.monotonic() - began < 3 * seconds / 4:
        done, under_way = wait(under_way, return_when="FIRST_COMPLETED")
        ended += len(done)
        under_way |= {one() for _ in done}
    wait(under_way)
    return each, (ended + len(under_way)) / (time.monotonic() - began)
