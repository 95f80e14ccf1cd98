"""The shield: an action that the predictor thinks unsafe is raised, service by service, until it is safe or everything is up.

Services are raised by one level in the order of the slope of the probability with respect to their quotas, steepest first. Where all are
one level higher and it is still unsafe, the next round begins, up to the highest level.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from armillary.scheduling.microservices.learning.features import LEVELS, Observed
from armillary.scheduling.microservices.simulation.window import Floats, Ints

from .allocator import within

TOP = len(LEVELS) - 1
#: A round looks at so many steps at most, and raises several services per step where there are more.
STEPS = 8


class Judge(Protocol):
    """What the shield asks: what a history amounts to, probabilities of proposals after it, and slopes."""

    def remembered(self, history: Any) -> Any: ...

    def probabilities(self, remembered: Any, proposed: Any) -> Floats: ...

    def slopes(self, seen: Observed, remembered: Any, quotas: Floats) -> Floats: ...


def quotas_at(seen: Observed, levels: Ints) -> Floats:
    """Quotas […, services] that levels […, services] make of the present ones."""
    return within(seen.window.quotas * LEVELS[levels])


def risk(judge: Judge, seen: Observed, remembered: Any, levels: Ints) -> Floats:
    """The larger of both probabilities of levels [batch, services], [batch]."""
    found: Floats = judge.probabilities(remembered, seen.proposed(quotas_at(seen, levels))).max(1)
    return found


def shielded(judge: Judge, seen: Observed, remembered: Any, levels: Ints, p_max: float, *, by_slope: bool = True) -> tuple[Ints, float]:
    """(levels that are safe or all up, their risk). Without `by_slope` the busiest services are raised first."""
    now = float(risk(judge, seen, remembered, levels[None])[0])
    while now > p_max and (levels < TOP).any():
        if by_slope:
            order = np.argsort(judge.slopes(seen, remembered, quotas_at(seen, levels)), kind="stable")
        else:
            order = np.argsort(-seen.window.used / seen.window.cores, kind="stable")
        order = order[levels[order] < TOP]
        steps = np.unique(np.ceil(np.linspace(0, len(order), min(len(order), STEPS) + 1)[1:]).astype(np.int64))
        tried = np.repeat(levels[None], len(steps), 0)
        for row, many in enumerate(steps):
            tried[row, order[:many]] += 1
        found = risk(judge, seen, remembered, tried)
        safe = np.flatnonzero(found <= p_max)
        row = int(safe[0]) if len(safe) else len(steps) - 1
        levels, now = tried[row], float(found[row])
    return levels, now


def lowered(judge: Judge, seen: Observed, remembered: Any, levels: Ints, p_max: float) -> Ints:
    """Levels of which as many as stay safe are one lower, least sensitive services first."""
    order = np.argsort(-judge.slopes(seen, remembered, quotas_at(seen, levels)), kind="stable")
    order = order[levels[order] > 0]
    if not len(order):
        return levels
    steps = np.unique(np.ceil(np.linspace(0, len(order), min(len(order), STEPS) + 1)[1:]).astype(np.int64))
    tried = np.repeat(levels[None], len(steps), 0)
    for row, many in enumerate(steps):
        tried[row, order[:many]] -= 1
    safe = np.flatnonzero(risk(judge, seen, remembered, tried) <= p_max)
    return tried[int(safe[-1])] if len(safe) else levels
