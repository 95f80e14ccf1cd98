"""All metrics of one technique on one case."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.scheduling.workflow.planning.ranker import Planning, Ranker, Ranking
from armillary.scheduling.workflow.workload import WorkflowWork
from armillary.timing import Stopwatch

from .agreement import concordance, first_makespan, groups
from .questions import questions, share_met


@dataclass(frozen=True)
class Measured:
    """Metrics by name, and what they were made from."""

    values: dict[str, float]
    planning: Planning
    ranking: Ranking


def planning_of(work: WorkflowWork, technique: Ranker) -> Planning:
    """What a technique may see of a case: the judge's makespans only if it is an oracle, or if they are the user's own."""
    seen = work.judged if technique.oracle or work.given else None
    return Planning(work.layout, work.configurations, work.candidates, work.costs, work.statistics, work.machine, seen)


def measures(technique: Ranker, work: WorkflowWork, rng: np.random.Generator) -> Measured:
    """Ranks the candidates and compares the ranking with the judge; `rng` draws the questions, the same for every technique."""
    planning = planning_of(work, technique)
    watch = Stopwatch()
    with watch:
        ranking = technique.rank(planning)
    judged = work.judged
    first = first_makespan(ranking.score, judged)
    count, cv = groups(ranking.score, judged)
    promise = ranking.promise if ranking.promise is not None else np.full(len(judged), plain_guess(planning, work))
    asked = questions(planning.options, work.layout, judged, rng)
    values = {
        "concordance": concordance(ranking.score, judged),
        "first_s": first,
        "first_regret": first / float(judged.min()) - 1,
        "qos_met": share_met(technique, planning, ranking, asked, judged),
        "promise_error": float((np.abs(promise - judged) / judged).mean()),
        "regions": float(count),
        "region_cv": cv,
        "build_s": watch.seconds,
    }
    return Measured(values, planning, ranking)


def plain_guess(planning: Planning, work: WorkflowWork) -> float:
    """What stands for the promise of a technique that has none: the mean of the analytic model, or of the makespans that users brought."""
    return float(planning.total.mean()) if planning.costs else float(work.judged.mean())
