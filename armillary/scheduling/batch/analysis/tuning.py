"""Which fairness suits a log: the knee of the curve of I/O slowdown against turnaround on the log's last days.

Nothing here is the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from armillary.errors import InputError
from armillary.scheduling.batch.easy import Easy
from armillary.scheduling.batch.equilibrio import EquilibrIO
from armillary.scheduling.batch.simulation.replay import metrics
from armillary.scheduling.batch.workload import BatchWork

from .frontier import FAIRNESS


@dataclass(frozen=True)
class Knee:
    """The fairness that was found, and what it would have cost whom compared with EASY."""

    fairness: float
    #: (fairness, I/O slowdown, mean turnaround in seconds) of every point tried.
    curve: tuple[tuple[float, float, float], ...]
    #: I/O slowdown and mean turnaround of EASY on the same days.
    easy: tuple[float, float]
    #: The jobs whose turnaround grew by more than a tenth, by how much (s) on average, and the users with the largest sums of them.
    delayed: int
    delay_mean_s: float
    users: tuple[tuple[int, float], ...]


def tune(work: BatchWork, days: float = 7.0, steps: tuple[float, ...] = FAIRNESS) -> Knee:
    """Replays the last `days` of a log at each fairness and picks the point nearest to the best of both axes.

    Both axes are scaled to 0…1 between their least and largest values on the curve; the nearest to (0, 0) is the knee.
    """
    recent = last_days(work, days)
    found = []
    for phi in steps:
        got = metrics(EquilibrIO(fairness=phi).play(recent))
        found.append((phi, got["io_slowdown"], got["turnaround_mean_s"]))
    values = np.array([row[1:] for row in found])
    span = np.ptp(values, axis=0)
    scaled = (values - values.min(axis=0)) / np.where(span > 0, span, 1.0)
    best = steps[int(np.argmin((scaled**2).sum(axis=1)))]
    plain, chosen = Easy().play(recent), EquilibrIO(fairness=best).play(recent)
    later = chosen.end_s - plain.end_s
    hurt = later > 0.1 * (plain.end_s - recent.jobs.submit_s)
    numbers, owner = np.unique(recent.jobs.user[hurt], return_inverse=True)
    sums = np.bincount(owner, later[hurt], len(numbers)) if hurt.any() else np.empty(0)
    worst = np.argsort(-sums, kind="stable")[:3]
    before = metrics(plain)
    return Knee(
        best, tuple(found), (before["io_slowdown"], before["turnaround_mean_s"]), int(hurt.sum()),
        float(later[hurt].mean()) if hurt.any() else 0.0, tuple((int(numbers[i]), float(sums[i])) for i in worst),
    )  # fmt: skip


def last_days(work: BatchWork, days: float) -> BatchWork:
    """The jobs that were submitted in the last days of a log."""
    if not days > 0 or not len(work):
        raise InputError(f"found {days} days of {len(work)} jobs; expected more than 0 of both", where="days")
    kept = work.jobs.submit_s >= work.jobs.submit_s[-1] - 86400.0 * days
    names = ("duty", "bandwidth", "phases", "told_duty", "told_bandwidth")
    return replace(work, jobs=work.jobs.take(kept), **{name: getattr(work, name)[kept] for name in names})
