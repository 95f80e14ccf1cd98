"""Our policies beside a real Slurm of four nodes: the order of starts, what the commands answer, and a governor that acts."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.scheduling.batch import Easy, EquilibrIO, Fcfs, History, Policy, without_io
from armillary.scheduling.slurm import MARK, Governor, Slurm
from armillary.scheduling.swf import Jobs, jobcomp_text, read_jobcomp, read_jobs

#: (nodes, run in seconds, limit in minutes) of the jobs of a script, in the order of submission. Under EASY jobs 3, 5, 7 and 10 pass older
#: ones, job 8 asks for too long to pass, and different starts are at least 4 s apart, because ends and starts of real jobs take a second.
SCRIPT = (
    (3, 10, 1), (2, 12, 2), (4, 6, 1), (1, 4, 1), (2, 8, 2), (1, 20, 1), (3, 4, 1), (1, 10, 1), (2, 10, 3), (4, 4, 1), (1, 4, 1), (2, 4, 1)
)  # fmt: skip


def played(slurm: Slurm, script: tuple[tuple[int, int, int], ...], most_s: float = 150.0) -> Jobs:
    """Submits a script whose jobs may all begin at one instant, and waits for its end."""
    begin = time.time() + 5
    jobs = [slurm.submit(nodes, 60 * limit, f"sleep {run}", name=f"j{i}", begin=begin) for i, (nodes, run, limit) in enumerate(script)]
    end = time.monotonic() + most_s
    while slurm.queue() and time.monotonic() < end:
        time.sleep(0.5)
    found = read_jobcomp(Path(str(slurm.configuration)).with_name("jobcomp.txt"))
    return found.take(np.isin(found.job, jobs))


def ours(script: tuple[tuple[int, int, int], ...], policy: Policy) -> list[float]:
    """The starts under one of our policies, all jobs submitted at 0."""
    nodes, run, limit = np.array(script).T
    return policy.play(without_io(Jobs.of(np.zeros(len(nodes)), run, nodes, requested_s=60 * limit, machine_nodes=4))).start_s.tolist()


def assert_same_order(found: Jobs, starts: list[float]) -> None:
    """Jobs that start at different simulated instants start in the same order; ends and starts of real jobs take a second or so."""
    assert len(found) == len(starts)
    real = found.start_s - found.start_s.min()
    for i, first in enumerate(starts):
        for k, second in enumerate(starts):
            if first < second:
                assert real[i] <= real[k], f"job {i} should start before job {k}: {real.tolist()} and {starts}"


@pytest.mark.slow
def test_slurms_builtin_scheduler_starts_jobs_in_our_order(builtin_slurm: Slurm) -> None:
    script = tuple((4, run, 1) for run in (2, 1, 3, 1))
    assert_same_order(played(builtin_slurm, script), ours(script, Fcfs()))


@pytest.mark.slow
def test_slurms_backfill_starts_jobs_in_the_order_of_easy(settling_slurm: Slurm) -> None:
    assert_same_order(played(settling_slurm, SCRIPT), ours(SCRIPT, Easy()))


def test_the_commands_answer_and_a_governor_holds_what_would_contend(slurm: Slurm, tmp_path: Path) -> None:
    """One cluster for all that needs a few seconds: the queue, a planned start, holds, priorities, and the log that Slurm writes."""
    assert slurm.nodes().idle == slurm.nodes().total == 4
    history = History()
    history.add(_user(), "writer", 1, 0.9, 5e9)
    writer, filler = slurm.submit(1, 60, "sleep 600", name="writer"), slurm.submit(3, 60, "sleep 600", name="filler")
    second, solver = slurm.submit(1, 60, "sleep 0", name="writer"), slurm.submit(1, 60, "sleep 0", name="solver")
    _until(slurm, lambda: sum(job.running for job in slurm.queue()) == 2)
    later = slurm.planned_start(4, 60) - time.time()
    assert 30 <= later <= 200  # Everybody asked for a minute, and Slurm plans in minutes.
    governor = Governor(EquilibrIO(fairness=0.0), slurm, history=history, capacity=6e9)
    said = governor.step()
    assert [(a.kind, a.job) for a in said if a.kind == "hold"] == [("hold", second)]
    assert not any(job.held for job in slurm.queue())  # A dry run changes nothing.
    acting = Governor(EquilibrIO(fairness=0.0), slurm, history=history, capacity=6e9, dry_run=False)
    acting.step()
    state = {job.job: job for job in slurm.queue()}
    assert state[second].held
    assert state[second].comment == MARK
    assert not state[solver].held
    slurm.cancel([writer, filler])
    _until(slurm, lambda: not any(job.job in (writer, filler, solver) for job in slurm.queue()))
    assert [(a.kind, a.job) for a in acting.step()][:1] == [("release", second)]  # Nothing contends any more.
    _until(slurm, lambda: not slurm.queue())
    log = read_jobs(Path(str(slurm.configuration)).with_name("jobcomp.txt"))
    assert set(log.job.tolist()) == {writer, filler, second, solver}
    assert log.start_s[log.job == second] >= log.start_s[log.job == solver]
    (tmp_path / "again.txt").write_text(jobcomp_text(log))
    again = read_jobcomp(tmp_path / "again.txt")
    assert (again.submit_s.tolist(), again.wait_s.tolist()) == (log.submit_s.tolist(), log.wait_s.tolist())
    with pytest.raises(InputError, match="scontrol"):
        slurm.release(99_999)


def _user() -> str:
    import os
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def _until(slurm: Slurm, done: object, most_s: float = 60.0) -> None:
    end = time.monotonic() + most_s
    while not done():  # type: ignore[operator]
        assert time.monotonic() < end, slurm.queue()
        time.sleep(0.2)
