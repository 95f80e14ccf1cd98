"""Simulated training with checkpoints that go to shared storage through a copy in the host."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from armillary.training.checkpoint.analysis.interval import young_daly_s
from armillary.training.checkpoint.workload import WARM_UP

from .training import Trained, unplanned_error

if TYPE_CHECKING:
    from armillary.training.checkpoint.workload import CheckpointWork


def write_s(work: CheckpointWork) -> float:
    """Seconds in which a node writes, or reads, the checkpoints of its GPUs."""
    return work.machine.fabric.node * work.state / work.machine.storage


def young(work: CheckpointWork, cost_s: float) -> int:
    """Iterations between two checkpoints that cost `cost_s` each, after Young and Daly, and no shorter than a write.

    Without failures to plan for, as often as the storage takes them.
    """
    plain = float(work.plain_s[:WARM_UP].mean())
    least = math.ceil(write_s(work) / plain)
    if work.outages is None:
        return max(1, least)
    return max(1, least, round(young_daly_s(cost_s, work.outages.mtbf_s) / plain))


def on_storage(work: CheckpointWork, *, rate: float, overlapped: bool, interval: int, budget: float = 0.0) -> Trained:
    """Trains with a checkpoint every `interval` iterations, copied to the host at `rate` and written by a thread of the host.

    A checkpoint begins when the one before it is written, and training waits for that. The copy holds up training, or, where it is
    `overlapped`, runs beside the next forward and backward pass and holds up the update only. With a `budget` the interval grows until
    checkpoints cost at most that share.
    """
    copy, write = work.state / rate, write_s(work)
    count, plain = work.iterations, work.plain_s
    seconds, stalls = plain.copy(), np.zeros(count)
    now, written, next_at, gaps, previous = 0.0, 0.0, 0, [], None
    every, owed = interval, 0.0
    for t in range(count):
        if t == next_at:
            waited = max(0.0, written - now)
            beside = float(plain[t]) - work.update_s if overlapped else 0.0
            stalls[t] = waited + max(0.0, copy - beside)
            written = now + waited + copy + write
            if previous is not None:
                gaps.append(t - previous)
            owed += stalls[t]
            if budget and t:
                every = max(every, math.ceil(owed / (budget * float(plain[: t + 1].mean()))))
            previous, next_at, owed = t, t + every, 0.0
        seconds[t] += stalls[t]
        now += float(seconds[t])
    mean = float(plain[:WARM_UP].mean())
    held = max(0.0, copy - (mean - work.update_s)) if overlapped else copy
    # In a steady state a checkpoint begins every `every` iterations, or as soon as the one before it is written.
    each = max(every * mean + held, copy + write if overlapped else held + write)
    delay = copy + write
    return Trained(
        seconds, stalls, each / every, unplanned_error(work), float(np.mean(gaps)) if gaps else float(every),
        math.ceil(delay / max(float(seconds[WARM_UP:].mean()), 1e-12)), write + work.state / work.machine.pcie, np.zeros(count),
        saved=work.state,
    )  # fmt: skip
