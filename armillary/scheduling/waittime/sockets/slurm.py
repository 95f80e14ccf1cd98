"""Asks about a real Slurm: a history from `sacct`, the queue from `squeue --json`, and one job that might be submitted now."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from armillary.errors import InputError
from armillary.scheduling.swf import Jobs, SlurmJob, read_jobs, read_queue
from armillary.scheduling.waittime.features.state import Present, QueueState, at_submission
from armillary.scheduling.waittime.features.sweep import known_at_submission
from armillary.scheduling.waittime.learned_wait import LearnedWait
from armillary.scheduling.waittime.learning.fitted import WaitModel


@dataclass(frozen=True)
class WaitAnswer:
    """When a job would start if it were submitted now. All are seconds from now, except `start_s`, which is Unix time."""

    wait_s: float
    #: The ends of an interval that covers 90 % of such waits.
    low_s: float
    high_s: float
    start_s: float
    #: What planning the queue with requested times says, and what `sbatch --test-only` would.
    planned_s: float
    slurm_estimate_s: float


@dataclass(frozen=True)
class SlurmAdvisor:
    """Answers questions about a Slurm whose history it has learned."""

    model: WaitModel
    #: Nodes of the machine.
    machine_nodes: int
    clock: Callable[[], float] = time.time

    def ask(
        self, squeue_json: str | bytes, *, nodes: int, time_limit: float, user: str = "", name: str = "", partition: str = "",
        now: float | None = None,
    ) -> WaitAnswer:  # fmt: skip
        """When a job of `nodes` nodes and `time_limit` seconds would start, given what `squeue --json` printed.

        user, name, partition: as in the history, where they are known. now: Unix time of the queue's text, by default this moment.
        """
        moment = self.clock() if now is None else now
        state = self.state(read_queue(squeue_json), moment)
        history = self.model.history
        numbers = (self._number(column, text) for column, text in (("user", user), ("executable", name), ("partition", partition)))
        job = Jobs.of(
            [state.now_s], [0.0], [nodes], requested_s=[time_limit], machine_nodes=self.machine_nodes,
            **{column: [number] for column, number in zip(("user", "executable", "partition"), numbers, strict=True)},
        )  # fmt: skip
        wait = float(self.model.predict(job, state)[0])
        low, high = (float(end[0]) for end in self.model.predict_interval(job, state))
        seen = known_at_submission(at_submission(history, state, job), first=-1, depth=self.model.how.depth)
        planned, coarse = float(seen.planned_s[0]), float(seen.unqueued_s[0] + seen.backlog_s[0])
        return WaitAnswer(wait, low, high, moment + wait, planned, coarse)

    def state(self, queue: list[SlurmJob], now: float) -> QueueState:
        """The queue at the Unix time `now`; jobs that are held do not take part."""
        epoch = self.model.history.epoch_s or 0.0
        pending = sorted((job for job in queue if job.pending and not job.held), key=lambda job: (-job.priority, job.submit_s, job.job))
        running = [job for job in queue if job.running]
        seen = [self._present(job, now, epoch, runs=True) for job in running]
        return QueueState(now - epoch, self.machine_nodes, seen, [self._present(job, now, epoch, runs=False) for job in pending])

    def _present(self, job: SlurmJob, now: float, epoch: float, *, runs: bool) -> Present:
        # Clocks of hosts differ by a little.
        submit = min(job.submit_s, now)
        start = min(max(now if job.start_s is None else job.start_s, submit), now) if runs else None
        return Present(
            job.nodes, job.limit_s, submit - epoch, None if start is None else start - epoch, self._number("user", job.user),
            self._number("executable", job.name), partition=self._number("partition", job.partition),
        )  # fmt: skip

    def _number(self, column: str, text: str) -> int:
        """The number that stands for a text in the history; -1 if the history does not know it."""
        texts = self.model.history.names.get(column, ())
        return texts.index(text) if text and text in texts else -1


def from_slurm(
    history: str | Path | Jobs, *, machine_nodes: int = 0, zone: str = "UTC", technique: LearnedWait | None = None
) -> SlurmAdvisor:  # fmt: skip
    """Learns from the text of `sacct --parsable2` (or a jobcomp file, or SWF) and returns what answers about the queue.

    machine_nodes: nodes of the machine; 0 takes what the log says, or its widest job. zone: the time zone of the text.
    """
    jobs = history if isinstance(history, Jobs) else read_jobs(history, machine_nodes=machine_nodes, zone=zone)
    if not jobs.waits_known:
        raise InputError("found a log without waits; expected submissions and starts", where=str(history)[:200])
    size = machine_nodes or jobs.machine_nodes
    if int(jobs.nodes.max()) > size:
        raise InputError(f"found a job of {int(jobs.nodes.max())} nodes; expected at most the machine's {size}", where="machine_nodes")
    return SlurmAdvisor((technique or LearnedWait()).fit(jobs.take(~np.isnan(jobs.wait_s))), size)
