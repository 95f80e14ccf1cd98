"""Seeded questions about a case, and whether a technique's answers hold in the judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from armillary.scheduling.workflow.planning.configurations import Configurations, Layout
from armillary.scheduling.workflow.planning.query import Query
from armillary.scheduling.workflow.planning.ranker import Planning, Ranker, Ranking
from armillary.scheduling.workflow.stages.workflow import Floats

QUESTIONS = 40


@dataclass(frozen=True)
class Question:
    """A query, and whether any candidate meets it in the judge."""

    query: Query
    feasible: bool


def questions(
    options: Configurations, layout: Layout, judged: Floats, rng: np.random.Generator, count: int = QUESTIONS
) -> list[Question]:  # fmt: skip
    """Deadlines at the 2 to 60 % quantile of the judged makespans, alone or with a limit on nodes or tiers; a tenth cannot be met.

    The quantile is that of the configurations which the limits allow. An infeasible deadline is 50 to 95 % of their best.
    """
    found = []
    counts = np.unique(options.nodes)
    local = [name for t, name in enumerate(layout.tiers) if t != layout.shared]
    for n in range(count):
        query = Query()
        kind = n % 3
        if kind == 1 and len(counts) > 1:
            query = Query(nodes_max=int(counts[int(rng.integers(len(counts) - 1))]))
        elif kind == 2:
            query = Query(tiers=(layout.tiers[layout.shared], local[int(rng.integers(len(local)))]))
        allowed = judged[query.allows(options, layout)]
        level, low = rng.uniform(0.02, 0.60), rng.uniform(0.50, 0.95)
        if not len(allowed):
            query, allowed = Query(), judged
        feasible = n % 10 != 9
        deadline = float(np.quantile(allowed, level)) if feasible else low * float(allowed.min())
        found.append(Question(Query(deadline, query.nodes_max, query.tiers), feasible))
    return found


def share_met(technique: Ranker, planning: Planning, ranking: Ranking, asked: Sequence[Question], judged: Floats) -> float:
    """The share of questions whose answer holds: a configuration that meets all conditions, or "infeasible" where that is right."""
    met = 0.0
    for question in asked:
        answer = technique.answer(planning, ranking, question.query)
        if not len(answer):
            met += not question.feasible
        elif question.feasible:
            allowed = question.query.allows(planning.options, planning.layout, planning.local_bytes)
            deadline = question.query.deadline_s
            met += float((allowed & (judged <= (np.inf if deadline is None else deadline)))[answer].mean())
    return met / len(asked)
