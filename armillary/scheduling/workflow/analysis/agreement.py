"""How well a ranking agrees with the judge's makespans."""

from __future__ import annotations

import numpy as np

from armillary.scheduling.workflow.stages.workflow import Floats


def concordance(score: Floats, makespan: Floats) -> float:
    """The share of pairs that the ranking orders as the makespans do; a tie in the ranking counts one half.

    Pairs with equal makespans have no order and are left out; 0.5 if there is no other pair.
    """
    s, m = np.asarray(score, float), np.asarray(makespan, float)
    first, second = np.triu_indices(len(s), 1)
    truth, said = np.sign(m[second] - m[first]), np.sign(s[second] - s[first])
    counts = truth != 0
    if not counts.any():
        return 0.5
    right = np.where(said == 0, 0.5, said == truth)
    return float(right[counts].mean())


def first_makespan(score: Floats, makespan: Floats) -> float:
    """The makespan of the first configuration of a ranking, expected over ties."""
    s = np.asarray(score, float)
    return float(np.asarray(makespan, float)[s == s.min()].mean())


def groups(score: Floats, makespan: Floats) -> tuple[int, float]:
    """The number of different scores, and the coefficient of variation of the makespans within a score, weighted by size."""
    found = np.unique(score)
    total = 0.0
    for one in found:
        of = makespan[score == one]
        total += len(of) * (float(of.std() / of.mean()) if of.mean() > 0 else 0.0)
    return len(found), total / len(score)
