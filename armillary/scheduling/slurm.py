"""Talking to a real Slurm: reading its queue, setting priorities, holding and releasing jobs, asking when a job would start.

```python
from armillary.scheduling.batch import EquilibrIO, History
from armillary.scheduling.slurm import Governor, Slurm

slurm = Slurm()                                    # the commands in PATH and the configuration that they find
slurm.queue(), slurm.nodes()                       # what runs and waits now, and how many nodes are idle
slurm.planned_start(nodes=4, limit_s=3600)         # what `sbatch --test-only` answers, as Unix time
Governor(EquilibrIO(), slurm, history=History.of(jobs, io), capacity=80e9).step()       # says what it would do, and does nothing
```

`Governor` needs no plugin: once per period it reads the queue, asks a policy which jobs should start now, gives these the highest
priorities, and holds the data-intensive jobs that the policy does not want to start yet. Computing jobs are left to Slurm's own scheduler.
It does nothing by itself unless `dry_run=False`.
"""

from __future__ import annotations

import datetime
import math
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from armillary.errors import InputError, one_line
from armillary.scheduling.swf import SlurmJob, read_queue

#: The administrator's comment on jobs that `Governor` holds, so that it never touches the holds of others.
MARK = "armillary-governor"
#: The priority of the first job that should start; the following ones get one less each.
TOP = 4_294_967_000
#: Seconds within which a command must answer.
ANSWER_S = 60.0
#: Reasons for which a pending job cannot start, however many nodes are free.
_NOT_ELIGIBLE = ("Dependency", "DependencyNeverSatisfied", "BeginTime", "PartitionDown", "PartitionInactive", "BadConstraints")


@dataclass(frozen=True)
class Waiting:
    """A queued job as a policy sees it."""

    job: int
    nodes: int
    requested_s: float
    waited_s: float = 0.0
    #: The share of its isolated run that it spends in I/O (ι); 0 if it is unknown.
    duty: float = 0.0
    #: Bytes per second that it moves while it does I/O and nobody throttles it (c); 0 if it is unknown.
    bandwidth: float = 0.0


@dataclass(frozen=True)
class Running:
    """A running job as a policy sees it."""

    job: int
    nodes: int
    #: Seconds of its request that are left; 0 or less if it is overdue.
    remaining_s: float
    duty: float = 0.0
    bandwidth: float = 0.0


class Chooses(Protocol):
    """A policy: which jobs should start now."""

    def choose(self, queue: Sequence[Waiting], running: Sequence[Running], free_nodes: int, capacity: float) -> list[int]:
        """The numbers of the jobs to start now, in this order. `queue` is in its own order, `capacity` is in bytes per second."""
        ...


class Knows(Protocol):
    """What is known about the I/O of jobs before they run."""

    def io(self, user: str, executable: str, nodes: int) -> tuple[float, float]:
        """(ι, c) of a coming run, (0, 0) where nothing is known."""
        ...


@dataclass(frozen=True)
class Nodes:
    """How many nodes can be used at all, and how many are idle."""

    total: int
    idle: int


@dataclass(frozen=True)
class Slurm:
    """The commands of one Slurm cluster; `configuration` is its slurm.conf, or None for what the commands find themselves."""

    configuration: str | Path | None = None

    def command(self, *words: str) -> tuple[str, str]:
        """Runs one of Slurm's commands and returns what it printed and what it complained about. Times are printed in UTC."""
        path = os.environ.get("PATH", os.defpath) + ":/usr/sbin"
        program = shutil.which(words[0], path=path)
        if program is None:
            raise InputError(f"found no {words[0]}; expected Slurm's commands in PATH")
        environment = {**os.environ, "TZ": "UTC"}
        if self.configuration is not None:
            environment["SLURM_CONF"] = str(self.configuration)
        try:
            done = subprocess.run(
                [program, *words[1:]], env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWER_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise InputError(f"found no answer within {ANSWER_S:g} s", where=words[0]) from None
        out, complaint = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        if done.returncode:
            last = complaint.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            raise InputError(one_line(last[0]), where=words[0])
        return out, complaint

    def queue(self) -> list[SlurmJob]:
        """Every job that waits or runs."""
        return [job for job in read_queue(self.command("squeue", "--json")[0]) if job.pending or job.running]

    def nodes(self) -> Nodes:
        """Nodes that are neither down nor drained; a node of several partitions counts once."""
        states = dict(line.split()[:2] for line in self.command("sinfo", "-h", "-N", "-o", "%N %t")[0].splitlines() if line.split()[1:])
        usable = [state for state in states.values() if re.match(r"(idle|alloc|mix|comp|plnd|resv)\w*\+?$", state)]
        return Nodes(len(usable), sum(state in ("idle", "plnd") for state in usable))

    def submit(
        self, nodes: int, limit_s: float, command: str = "true", *, name: str = "job", hold: bool = False, begin: float | None = None
    ) -> int:  # fmt: skip
        """Submits a batch job and returns its number.

        Slurm rounds the limit up to minutes; `begin` is the Unix time of the earliest start.
        """
        words = ["sbatch", "--parsable", f"--nodes={nodes}", f"--time={math.ceil(limit_s / 60)}", f"--job-name={name}"]
        words += ["--output=/dev/null", "--chdir=/", *(["--hold"] if hold else [])]
        if begin is not None:
            words.append("--begin=" + datetime.datetime.fromtimestamp(begin, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S"))
        words.append(f"--wrap={command}")
        return int(self.command(*words)[0].partition(";")[0])

    def planned_start(self, nodes: int, limit_s: float) -> float:
        """When such a job would start if it were submitted now, as `sbatch --test-only` plans it; Unix time."""
        words = ("sbatch", "--test-only", f"--nodes={nodes}", f"--time={math.ceil(limit_s / 60)}", "--wrap=true")
        out, complaint = self.command(*words)
        found = re.search(r"to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", out + complaint)
        if not found:
            raise InputError(f'found "{one_line(out + complaint, 100)}"; expected a start time', where="sbatch --test-only")
        return datetime.datetime.fromisoformat(found[1]).replace(tzinfo=datetime.UTC).timestamp()

    def set_priority(self, job: int, priority: int) -> None:
        """Gives a pending job a priority of its own, which needs an operator's rights."""
        self.command("scontrol", "update", f"jobid={job}", f"priority={priority}")

    def hold(self, job: int, comment: str = "") -> None:
        """Holds a pending job, and leaves the administrator's comment on it."""
        if comment:
            self.command("scontrol", "update", f"jobid={job}", f"admincomment={comment}")
        self.command("scontrol", "hold", str(job))

    def release(self, job: int, *, clear_comment: bool = False) -> None:
        """Releases a held job."""
        self.command("scontrol", "release", str(job))
        if clear_comment:
            self.command("scontrol", "update", f"jobid={job}", "admincomment=")

    def cancel(self, jobs: Iterable[int]) -> None:
        """Cancels jobs."""
        chosen = [str(job) for job in jobs]
        if chosen:
            self.command("scancel", *chosen)


@dataclass(frozen=True)
class Action:
    """One thing that `Governor` does, or would do, to a job: `hold`, `release`, or `priority` with its value."""

    kind: str
    job: int
    value: int = 0


@dataclass
class Governor:
    """Lets a policy of `scheduling/batch` govern a real Slurm from outside, once per period.

    Jobs that somebody else holds, and jobs that wait for a dependency or a date, are left alone. If it stops, `run` releases what it held.
    """

    policy: Chooses
    slurm: Slurm
    history: Knows | None = None
    #: Bytes per second of the file system.
    capacity: float = math.inf
    dry_run: bool = True
    clock: Callable[[], float] = time.time

    def plan(self, queue: Sequence[SlurmJob], free_nodes: int, now: float) -> list[Action]:
        """What should be done to this queue at the Unix time `now`. Nothing is read and nothing is changed."""
        waiting = sorted((job for job in queue if job.pending and self._ours(job)), key=lambda job: (job.submit_s, job.job))
        seen = [Waiting(j.job, j.nodes, j.limit_s, max(0.0, now - j.submit_s), *self._io(j)) for j in waiting]
        running = [
            Running(j.job, j.nodes, j.limit_s - (now - (now if j.start_s is None else j.start_s)), *self._io(j)) for j in queue if j.running
        ]
        chosen = self.policy.choose(seen, running, free_nodes, self.capacity)
        rank = {job: number for number, job in enumerate(chosen)}
        order = sorted(zip(waiting, seen, strict=True), key=lambda pair: rank.get(pair[0].job, len(rank)))
        actions: list[Action] = []
        for number, (job, known) in enumerate(order):
            wanted = job.job in rank or known.duty == 0.0
            if wanted:
                actions += [Action("release", job.job)] if job.held else []
                actions += [Action("priority", job.job, TOP - number)] if job.held or job.priority != TOP - number else []
            elif not job.held:
                actions.append(Action("hold", job.job))
        # Releases come last, in the order of their priorities, so that no job slips in before a hold.
        return sorted(actions, key=lambda action: (action.kind != "hold",))

    def step(self) -> list[Action]:
        """Reads the queue, plans, and acts unless it is a dry run; returns the actions."""
        actions = self.plan(self.slurm.queue(), self.slurm.nodes().idle, self.clock())
        if not self.dry_run:
            for action in actions:
                self._apply(action)
        return actions

    def run(self, period_s: float = 30.0, steps: int | None = None) -> None:
        """Steps once per period, `steps` times or for ever; at the end it releases every job that it holds."""
        try:
            while steps is None or steps > 0:
                self.step()
                steps = None if steps is None else steps - 1
                if steps is None or steps > 0:
                    time.sleep(period_s)
        finally:
            self.release_all()

    def release_all(self) -> list[int]:
        """Releases every job that it holds; returns their numbers."""
        held = [job.job for job in self.slurm.queue() if job.held and job.comment == MARK]
        if not self.dry_run:
            for job in held:
                self.slurm.release(job, clear_comment=True)
        return held

    def _ours(self, job: SlurmJob) -> bool:
        return job.comment == MARK if job.held else job.reason not in _NOT_ELIGIBLE

    def _io(self, job: SlurmJob) -> tuple[float, float]:
        return (0.0, 0.0) if self.history is None else self.history.io(job.user, job.name, job.nodes)

    def _apply(self, action: Action) -> None:
        """Does one thing; a job that ended or started meanwhile is passed over."""
        try:
            if action.kind == "hold":
                self.slurm.hold(action.job, MARK)
            elif action.kind == "release":
                self.slurm.release(action.job, clear_comment=True)
            else:
                self.slurm.set_priority(action.job, action.value)
        except InputError:
            if any(job.job == action.job and job.pending for job in self.slurm.queue()):
                raise
