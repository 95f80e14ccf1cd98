"""Our answers beside those of a real Slurm of four nodes."""

from __future__ import annotations

import time

import numpy as np
import pytest

from armillary.scheduling.slurm import Slurm
from armillary.scheduling.swf import Jobs, SlurmJob
from armillary.scheduling.waittime import LearnedWait, Log, SlurmAdvisor, WaitModel, known_at_submission
from armillary.scheduling.waittime.features.state import at_submission

#: Jobs (nodes, limit in minutes) that join the queue one after another; each row is one more queue to ask about.
SCRIPT = ((3, 10), (1, 5), (4, 20), (2, 30), (1, 15), (4, 7), (3, 12), (2, 3), (1, 60), (4, 2))
QUESTIONS = ((1, 5), (2, 15), (4, 30))


def advisor() -> SlurmAdvisor:
    """One that has learned nothing, for its view of the queue."""
    history = Jobs.of([0.0], [1.0], [1], machine_nodes=4, wait_s=[0.0], epoch_s=0.0)
    return SlurmAdvisor(WaitModel(LearnedWait(), history, None), 4)  # type: ignore[arg-type]


@pytest.mark.slow
def test_our_estimates_are_slurms(slurm: Slurm) -> None:
    """`slurm-estimate` is what `sbatch --test-only` answers, to two seconds, on ten queues; `scheduler` is the start of the queue's head."""
    ours = advisor()
    for place, (nodes, minutes) in enumerate(SCRIPT):
        job = slurm.submit(nodes, 60 * minutes, "sleep 3600")
        settled(slurm, job, runs=place < 2)
        for asked, limit in QUESTIONS:
            queue, now = slurm.queue(), time.time()
            theirs = slurm.planned_start(asked, 60 * limit) - now
            one = Jobs.of([now], [0.0], [asked], requested_s=[60.0 * limit], machine_nodes=4)
            known = known_at_submission(at_submission(ours.model.history, ours.state(queue, now), one), first=-1)
            assert abs(float(known.unqueued_s[0] + known.backlog_s[0]) - theirs) <= 2, (place, asked, limit)
    head = planned_head(slurm)
    before = [job for job in slurm.queue() if job.running]
    one = Jobs.of([time.time()], [0.0], [head.nodes], requested_s=[head.limit_s], machine_nodes=4)
    known = known_at_submission(at_submission(ours.model.history, ours.state(before, float(one.submit_s[0])), one), first=-1)
    assert head.start_s is not None
    assert abs(float(one.submit_s[0] + known.planned_s[0]) - head.start_s) <= 2


def settled(slurm: Slurm, job: int, *, runs: bool, most_s: float = 20.0) -> None:
    """Waits until a job has started, or a moment where it has to wait."""
    end = time.monotonic() + (most_s if runs else 0.5)
    while time.monotonic() < end and not any(one.job == job and one.running for one in slurm.queue()):
        time.sleep(0.2)


def planned_head(slurm: Slurm, most_s: float = 20.0) -> SlurmJob:
    """The first pending job, as soon as Slurm's backfill has planned its start."""
    end = time.monotonic() + most_s
    while time.monotonic() < end:
        head = min((job for job in slurm.queue() if job.pending), key=lambda job: job.job)
        if head.start_s:
            return head
        time.sleep(0.3)
    raise AssertionError("Slurm planned no start")


def test_a_log_of_one_job_has_no_wait() -> None:
    """The smallest log that the sweep takes."""
    assert known_at_submission(Log.of(Jobs.of([0.0], [1.0], [1], wait_s=[0.0]))).planned_s.tolist() == [0.0]
    assert np.isfinite(known_at_submission(Log.of(Jobs.of([], [], []))).matrix).all()
