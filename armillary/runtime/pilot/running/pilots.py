"""Our own pilot on a real case: over a Slurm of virtual nodes where a backend needs one, else over places on this machine."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from armillary.arena import NotForThisCase
from armillary.cluster.local_slurm import lacking
from armillary.runtime.pilot.agent.pilot import Pilot
from armillary.runtime.pilot.backends.slurm import Slurm

from .real import Ran, RealWork, stamped, timed_run

if TYPE_CHECKING:
    from armillary.runtime.pilot.agent.choose import Measured

#: Seconds for which backends may start, and for which a case may run.
READY_S, MOST_S = 120.0, 600.0


@contextlib.contextmanager
def started(work: RealWork, backends: list[str], python: str = "", **how: Any) -> Iterator[tuple[Pilot, float]]:
    """A pilot that is up, and the seconds that it took; starting a Slurm of our own is not counted."""
    with contextlib.ExitStack() as stack:
        slurm = None
        if "srun" in backends:
            if missing := lacking():
                raise NotForThisCase(f"found no {missing}: Slurm is not installed (Debian: slurm-wlm)")
            slurm = stack.enter_context(Slurm.local(work.nodes, work.slots))
        began = time.monotonic()
        pilot = stack.enter_context(Pilot(work.nodes, backends, cores=work.slots, slurm=slurm, peers=python, **how))
        pilot.wait_ready(READY_S)
        if not pilot.failures:
            _warm(pilot, work)
        yield pilot, time.monotonic() - began


def run_pilot(work: RealWork, backends: list[str], python: str = "") -> Ran:
    """Submits everything, executables first, and waits for all results."""
    with started(work, backends, python) as (pilot, bootstrap):
        if pilot.failures:
            name, reason = next(iter(pilot.failures.items()))
            raise NotForThisCase(f"{name}: {reason}")
        return timed_run(work, bootstrap, functools.partial(_all, pilot, work))


def _warm(pilot: Pilot, work: RealWork) -> None:
    """One task or more on each place, as every peer's driver does, too."""
    if work.executables:
        for future in [pilot.launch(["true"]) for _ in range(work.workers)]:
            future.result(READY_S)
    if work.functions:
        list(pilot.map(stamped, [0.0] * 4 * work.workers))


def _all(pilot: Pilot, work: RealWork) -> tuple[list[Any], list[Any]]:
    executables = [pilot.launch(work.command) for _ in range(work.executables)]
    if work.batched:
        stamps = list(pilot.map(stamped, [work.seconds] * work.functions))
    else:
        stamps = [future.result(MOST_S) for future in [pilot.submit(stamped, work.seconds) for _ in range(work.functions)]]
    return [future.result(MOST_S).returncode for future in executables], stamps


def run_chosen(work: RealWork, probe_s: float) -> Ran:
    """Says which of the backends that are here are predicted to be fastest, and runs those."""
    found = measured_here(probe_s, work.nodes, work.slots)
    chosen = found.choose(executables=work.executables, functions=work.functions, seconds=work.seconds)
    ran = run_pilot(work, chosen.backends)
    error = 100 * abs(chosen.makespan - ran.makespan) / ran.makespan if ran.makespan else 0.0
    return Ran(ran.bootstrap, ran.makespan, ran.done, ran.latency, {"chosen": " and ".join(chosen.backends), "prediction_error": error})


@functools.cache
def measured_here(probe_s: float, nodes: int, slots: int) -> Measured:
    """What the backends of this machine cost; measured once, because it does not depend on the work."""
    from armillary.runtime.pilot.agent.choose import measure_backends

    return measure_backends(seconds=probe_s, nodes=nodes, cores=slots)


def cores_here() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))
