"""Fleets that the tests share: drawn ones, and ones made by hand."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from armillary.observability.drives import Fleet, GmpPredictor, Predictor, draw
from armillary.observability.drives.fleets.fleet import NEVER, assembled
from armillary.streams import stream


def drawn(
    seed: int = 0, drives: int = 320, days: int = 70, failures: int = 110, horizon: int = 10, models: int = 2, **options: Any
) -> Fleet:
    return draw(stream(seed, "test", "drives"), drives, days, failures, horizon=horizon, models=models, **options)


@functools.cache
def fleet() -> Fleet:
    """A fleet of two models of which some 110 drives fail."""
    return drawn()


@functools.cache
def predictor() -> Predictor:
    """A small predictor that was trained for a moment."""
    return GmpPredictor(horizon=10, epochs=2, ensemble=1, width=8).fit(fleet())


def by_hand(
    failures: Sequence[int | None], days: int = 60, attributes: Sequence[int] = (5,), known_until: int | None = None, weight: float = 1.0
) -> Fleet:
    """A fleet of one model whose drives report zeros on every day before their failure."""
    n = len(failures)
    ends = [days if f is None else min(days, max(1, f)) for f in failures]
    drive = np.repeat(np.arange(n), ends)
    day = np.concatenate([np.arange(end) for end in ends])
    raw = np.zeros((len(day), len(attributes)))
    failure = np.array([NEVER if f is None else f for f in failures])
    return assembled(
        ["MA1"], np.zeros(n, np.int64), [str(i + 1) for i in range(n)], drive, day, np.array(attributes), raw, np.full(raw.shape, 100.0),
        failure, days=days, known_until=known_until or days, weight=weight, first_date="2018-01-01",
    )  # fmt: skip
