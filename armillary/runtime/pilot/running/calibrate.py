"""A promise and its delivery: launches of a hundred real tasks, put into the simulation, and four hundred others that then really run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from armillary.arena import NotForThisCase
from armillary.runtime.pilot.simulation.plan import Plan, Runtime
from armillary.runtime.pilot.simulation.play import simulate
from armillary.runtime.pilot.workload import EXECUTABLE, Tasks

from .pilots import started
from .real import Ran, RealWork, timed_run

BACKENDS = {"Local": ["local"], "Srun": ["srun"]}


def calibrated(name: str, gaps: np.ndarray) -> Plan:
    """A pilot with one launcher whose service times are drawn from measured ones (seconds)."""
    mean = float(gaps.mean())
    return Plan((Runtime(f"calibrated:{name}", mean, mean),), agent_s=0.0, measured=tuple(float(gap) for gap in gaps))


def predicted_makespan(technique: Any, work: RealWork, known: int, rng: np.random.Generator) -> tuple[float, Ran]:
    """(seconds that the simulation says, what then happened). The gaps between ends in a saturated run are the launcher's service."""
    backends = BACKENDS.get(type(technique).__name__)
    if backends is None:
        raise NotForThisCase("only backends of our own pilot say when each of their tasks ended")
    with started(work, backends) as (pilot, bootstrap):

        def run(count: int) -> list[int]:
            return [future.result().returncode for future in [pilot.launch(work.command) for _ in range(count)]]

        before = len(pilot.states)
        run(known)
        ends = np.sort(pilot.states["ended"].to_numpy()[before:])
        gaps = np.maximum(np.diff(ends), 1e-7)
        tasks = Tasks()
        tasks.add(EXECUTABLE, np.zeros(work.tasks))
        expected = simulate(tasks.work(work.nodes, work.slots, 0), calibrated(backends[0], gaps), rng).makespan
        ran = timed_run(replace(work, executables=work.tasks), bootstrap, lambda: (run(work.tasks), []))
    return expected, ran
