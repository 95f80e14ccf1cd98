"""Trained networks of all partitions, and how they score: the members' mean logit, calibrated per partition so that scores compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.learn.calibration import Platt

from ..blocks import in_blocks
from ..features.daily import Daily
from ..features.windows import places
from ..fleets.fleet import Array, Fleet
from ..judging.lesson import Lesson
from .frozen import logits
from .partition import Scaling, partitions, place
from .settings import Settings

#: Windows that are scored together.
BLOCK = 2048


@dataclass(frozen=True, eq=False)
class Part:
    """The networks of one partition."""

    models: tuple[str, ...]
    scaling: Scaling
    #: (arrays, weights of features) of each member.
    members: tuple[tuple[dict[str, Array], Array], ...]
    slope: float
    start: float
    history: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class Networks:
    """A scorer by networks; partitions stand in the order of their training failures, the most first."""

    how: Settings
    parts: dict[str, Part]
    #: The scores of the lesson's validation rows, which calibration needed anyway.
    validated: Array | None = None

    def scores(self, fleet: Fleet, days: Daily, rows: Array) -> Array:
        """The calibrated logit of each drive-day."""
        out = np.zeros(len(rows))
        names = list(self.parts)
        which = np.array([names.index(place(model, names)) for model in fleet.models], np.int64)
        mine = which[fleet.model[days.drive[rows]]]
        for i, name in enumerate(names):
            chosen = np.flatnonzero(mine == i)
            if len(chosen):
                out[chosen] = self.of_part(name, days, rows[chosen])
        return out

    def of_part(self, name: str, days: Daily, rows: Array) -> Array:
        """The calibrated logits of rows by the networks of one partition."""
        part = self.parts[name]
        return part.slope * raw_scores(self.how, part.scaling, part.members, days, rows) + part.start


def raw_scores(how: Settings, scaling: Scaling, members: tuple[tuple[dict[str, Array], Array], ...], days: Daily, rows: Array) -> Array:
    """The mean logit of the members."""

    def block(part: Array) -> Array:
        # Only the rows of this block are scaled and projected.
        at = places(days, part, how.length)
        used, where = np.unique(at, return_inverse=True)
        table = scaling.rows(days, used)
        total = np.zeros(len(part))
        for arrays, guide in members:
            total += logits(how.kind, arrays, how.heads, table * guide, where.reshape(at.shape))
        return total / len(members)

    return in_blocks(block, rows, BLOCK)


def fit(lesson: Lesson, how: Settings, progress: Callable[[float], None] | None = None) -> Networks:
    """Trains the networks of every partition."""
    from .training import train

    rows, held = lesson.train(), lesson.validation
    days, fleet = lesson.days, lesson.fleet
    failing = np.unique(days.drive[rows[lesson.of(rows)]])
    found = partitions(fleet, failing, how.divide)
    count = np.bincount(fleet.model[failing], minlength=len(fleet.models))
    order = sorted(found, key=lambda name: -sum(int(count[fleet.models.index(m)]) for m in found[name]))
    ensemble = how.ensemble if not lesson.most_ensemble else min(how.ensemble, lesson.most_ensemble)
    parts: dict[str, Part] = {}
    validated = np.zeros(len(held))
    for number, name in enumerate(order):
        models = np.array([fleet.models.index(m) for m in found[name]])
        mine = rows[np.isin(fleet.model[days.drive[rows]], models)]
        ours = held[np.isin(fleet.model[days.drive[held]], models)]
        scaling = Scaling.fit(days, mine)
        table = scaling.table(days, np.flatnonzero(np.isin(fleet.model, models)))
        members, history = [], []
        for i in range(ensemble):

            def shown(share: float, done: int = number * ensemble + i) -> None:
                if progress is not None:
                    progress((done + share) / (len(order) * ensemble))

            one = train(lesson, how, table, mine, ours, f"{name} {i}", shown)
            members.append((one.arrays, one.guide))
            history.append(one.history)
        score = raw_scores(how, scaling, tuple(members), days, ours)
        slope, start = _calibrated(lesson, score, ours)
        validated[np.searchsorted(held, ours)] = slope * score + start
        parts[name] = Part(found[name], scaling, tuple(members), slope, start, tuple(history))
    return Networks(how, parts, validated)


def _calibrated(lesson: Lesson, score: Array, rows: Array) -> tuple[float, float]:
    """Slope and start of the logit that fits the validation labels best; (1, 0) without anything to fit, or if it would turn the order."""
    label = lesson.of(rows)
    if not label.any() or label.all():
        return 1.0, 0.0
    platt = Platt.fit(score, label)
    return (platt.a, platt.b) if platt.a > 0.05 else (1.0, 0.0)
