"""What each part of learned-wait brings: the same work with one part left out at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from armillary.scheduling.waittime.judging.forecaster import with_intervals
from armillary.scheduling.waittime.judging.score import scores
from armillary.scheduling.waittime.learned_wait import LearnedWait
from armillary.scheduling.waittime.workload import WaitWork

#: What is changed of learned-wait, by name.
PARTS: dict[str, dict[str, Any]] = {
    "learned-wait": {},
    "no forecast": {"use_forecast": False},
    "no history of users": {"use_history": False},
    "no zero-wait head": {"zero_head": False},
}


def ablation(work: WaitWork, technique: LearnedWait | None = None) -> dict[str, dict[str, float]]:
    """The scores of each variant on this work; variants of built-in work are trained on first use."""
    whole = LearnedWait() if technique is None else technique
    jobs = work.jobs.take(slice(work.test, len(work)))
    found = {}
    for name, change in PARTS.items():
        predicted = replace(whole, **change).predictions(work)
        found[name] = scores(*with_intervals(work, predicted), jobs.wait_s, jobs.run_s, jobs.nodes)
    return found
