"""How well groups of makespans are separated: Hedges' g between neighbours, against a threshold that their own spread sets."""

from __future__ import annotations

import math

import numpy as np

from armillary.scheduling.workflow.stages.workflow import Floats, Ints

#: A pair of groups without any spread has an infinite g; this much counts instead (our design).
MOST_G = 10.0


def hedges_g(first: Floats, second: Floats) -> float:
    """g = (1 − 3 / (4 (n₁ + n₂) − 9)) (m₂ − m₁) / s, with the pooled standard deviation s; at most 10 in size."""
    n, m = len(first), len(second)
    if n + m < 4 or n < 1 or m < 1:
        return 0.0
    difference = float(second.mean() - first.mean())
    squares = float(((first - first.mean()) ** 2).sum() + ((second - second.mean()) ** 2).sum())
    pooled = math.sqrt(squares / (n + m - 2))
    if pooled <= 1e-12 * abs(difference):
        return math.copysign(MOST_G, difference) if difference else 0.0
    found = (1 - 3 / (4 * (n + m) - 9)) * difference / pooled
    return max(-MOST_G, min(MOST_G, found))


def robust_cv(values: Floats) -> float:
    """1.4826 times the median absolute deviation, over the median."""
    middle = float(np.median(values))
    return 1.4826 * float(np.median(np.abs(values - middle))) / middle if middle > 0 else 0.0


def is_significant(first: Floats, second: Floats, delta: float) -> bool:
    """Whether |g| ≥ clip(δ / CV, 0, 1), with the root mean square of both groups' robust CV."""
    cv = math.sqrt((robust_cv(first) ** 2 + robust_cv(second) ** 2) / 2)
    threshold = min(1.0, delta / cv) if cv > 0 else 1.0
    return abs(hedges_g(first, second)) >= threshold


def separation(groups: Ints, values: Floats, least: int, delta: float) -> float:
    """The weighted mean g of significant neighbours times their share of the weight; 0 if there is no pair of groups of `least` members.

    `groups` has the group of each value. Groups are sorted by median, and the weight of a pair is the harmonic mean of its sizes.
    """
    order = np.lexsort((values, groups))
    ranked = values[order]
    first = np.flatnonzero(np.diff(groups[order], prepend=groups[order[:1]] - 1))
    count = np.diff(first, append=len(ranked))
    median = (ranked[first + (count - 1) // 2] + ranked[first + count // 2]) / 2
    sequence = np.argsort(median, kind="stable")
    total = passed = score = 0.0
    for a, b in zip(sequence[:-1].tolist(), sequence[1:].tolist()):
        if min(count[a], count[b]) < least:
            continue
        lower, upper = ranked[first[a] : first[a] + count[a]], ranked[first[b] : first[b] + count[b]]
        weight = 2 / (1 / float(count[a]) + 1 / float(count[b]))
        total += weight
        if is_significant(lower, upper, delta):
            passed += weight
            score += weight * hedges_g(lower, upper)
    return (score / passed) * (passed / total) if passed else 0.0
