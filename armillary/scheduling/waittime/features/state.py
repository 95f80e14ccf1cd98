"""A queue as it stands now, and the log in which one more job is submitted to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.scheduling.swf import Jobs

from .sweep import Log

_NAMED = ("user", "executable", "queue", "partition")


@dataclass(frozen=True)
class Present:
    """A job that waits or runs now. Times are seconds on the clock of the history's `submit_s`; unknown numbers are -1."""

    nodes: int
    requested_s: float
    submit_s: float
    #: When it started; None while it waits.
    start_s: float | None = None
    user: int = -1
    executable: int = -1
    queue: int = -1
    partition: int = -1


@dataclass(frozen=True)
class QueueState:
    """What runs and waits at `now_s`; waiting jobs stand in the order in which the scheduler serves them."""

    now_s: float
    machine_nodes: int
    running: Sequence[Present] = ()
    queued: Sequence[Present] = ()

    def __post_init__(self) -> None:
        if not math.isfinite(self.now_s) or not 1 <= self.machine_nodes <= 1 << 24:
            raise InputError(
                f"found {self.machine_nodes} nodes at {self.now_s:g} s; expected 1 to 16,777,216 nodes and a time", where="state"
            )
        busy = sum(job.nodes for job in self.running)
        if busy > self.machine_nodes:
            raise InputError(f"found running jobs on {busy:,} nodes; expected at most the machine's {self.machine_nodes:,}", where="state")
        for what, present in (("running", self.running), ("queued", self.queued)):
            for i, job in enumerate(present):
                _check(job, self, what == "running", f"{what}[{i}]")


def _check(job: Present, state: QueueState, runs: bool, where: str) -> None:
    if not 1 <= job.nodes <= state.machine_nodes:
        raise InputError(f"found {job.nodes} nodes; expected 1 to the machine's {state.machine_nodes}", where=where)
    if not 0 <= job.requested_s < math.inf or not -math.inf < job.submit_s <= state.now_s:
        raise InputError(
            f"found a request of {job.requested_s:g} s, submitted at {job.submit_s:g}; expected 0 s or more, by now ({state.now_s:g})",
            where=where,
        )
    if runs != (job.start_s is not None) or (job.start_s is not None and not job.submit_s <= job.start_s <= state.now_s):
        raise InputError(f"found the start {job.start_s}; expected {'one by now' if runs else 'none for a queued job'}", where=where)


def at_submission(history: Jobs, state: QueueState, job: Jobs) -> Log:
    """The history up to now, the present jobs, and one job that is submitted now and stands last."""
    now = state.now_s
    past = history.take(history.end_s <= now)
    running = sorted(state.running, key=lambda one: one.submit_s)
    # The sweep serves jobs by submission; the k-th in the scheduler's order therefore gets the k-th earliest submission.
    submits = sorted(one.submit_s for one in state.queued)
    present = [*running, *state.queued]
    columns = {
        "submit": [past.submit_s, [one.submit_s for one in running], submits, [now]],
        "start": [past.start_s, [one.start_s for one in running], [math.inf] * len(submits), [math.inf]],
        "end": [past.end_s, [math.inf] * (len(present) + 1)],
        "requested": [past.requested_s, [one.requested_s for one in present], job.requested_s],
        "nodes": [past.nodes, [one.nodes for one in present], job.nodes],
    } | {name: [getattr(past, name), [getattr(one, name) for one in present], getattr(job, name)] for name in _NAMED}  # fmt: skip
    whole = {name: np.concatenate([np.asarray(part, float) for part in parts]) for name, parts in columns.items()}
    order = np.argsort(whole["submit"], kind="stable")
    found = {name: values[order] for name, values in whole.items()}
    merged = Jobs.of(
        found["submit"], np.zeros(len(order)), found["nodes"], requested_s=found["requested"], machine_nodes=state.machine_nodes,
        epoch_s=history.epoch_s, wait_s=np.where(np.isfinite(found["start"]), found["start"] - found["submit"], np.nan),
        **{name: found[name] for name in _NAMED},
    )  # fmt: skip
    return Log.of(merged, found["end"])
