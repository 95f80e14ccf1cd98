"""Fits a predictor to a fleet: the networks, then on the validation days the threshold, the survival curves and what a threshold costs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..fleets.fleet import NEVER, Fleet
from ..judging.alarms import best_threshold, per_drive
from ..judging.lesson import Lesson
from ..networks.scorer import fit
from ..networks.settings import Settings
from .costs import Held
from .drift import attention_of
from .predictor import Predictor
from .survival import Survival


def fitted(how: Settings, fleet: Fleet, horizon: int, seed: int, progress: Callable[[float], None] | None = None) -> Predictor:
    """Learns from all days of a fleet whose failures are known; `progress` is told the share that is done."""
    lesson = Lesson(fleet, horizon, seed)
    networks = fit(lesson, how, progress)
    scored = lesson.validated(networks)
    threshold, value, recall = best_threshold(fleet, scored, horizon)
    drives = per_drive(fleet, scored, horizon)
    healthy = fleet.failure[drives.drive] >= NEVER
    held = Held(
        fleet.models, fleet.model[drives.drive].astype(np.int64), drives.fails, healthy, drives.right.astype(np.float64),
        drives.any.astype(np.float64), int(lesson.split.validate[1] - lesson.split.validate[0]),
    )  # fmt: skip
    facts = {
        "drives": len(fleet), "failures": int(fleet.failed.sum()), "first_date": fleet.first_date, "days": fleet.days, "seed": seed,
        "validation_f05": round(value, 4), "validation_recall": round(recall, 4),
    }  # fmt: skip
    return Predictor(
        networks, tuple(fleet.attributes.tolist()), horizon, threshold, fleet.weight, Survival.fit(fleet, scored, horizon), held,
        attention_of(networks, lesson), facts,
    )  # fmt: skip
