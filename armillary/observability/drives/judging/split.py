"""Days are split by time, with a gap as long as the horizon between the parts, so that no label reaches across a border.

A sample is a drive on a day; its label says whether the drive fails within `horizon` days after it. Labels of the first part end before
the second part begins, and so do those of the second before the third.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.errors import InputError

from ..fleets.fleet import NEVER, Array, Fleet

TRAIN, VALIDATE = 0.60, 0.15
#: Days of history that a drive needs before anything is said of it.
MIN_DAYS = 7


@dataclass(frozen=True)
class Split:
    """Sample days [begin, end) of each part."""

    train: tuple[int, int]
    validate: tuple[int, int]
    test: tuple[int, int]
    horizon: int


def split(days: int, known_until: int, horizon: int, gap: int | None = None) -> Split:
    """The parts of a log of `days` whose failures are known before `known_until`: 60, 15 and 25 % of the days outside the gaps."""
    gap = horizon if gap is None else gap
    end = min(days, known_until - horizon)
    usable = end - 2 * gap
    if usable < 20:
        need = 20 + 2 * gap + horizon
        raise InputError(
            f"found {days} days with failures known for {known_until}; expected at least {need} days for a horizon of {horizon}"
        )
    a = round(TRAIN * usable)
    b = a + gap + max(3, round(VALIDATE * usable))
    return Split((MIN_DAYS - 1, a), (a + gap, b), (b + gap, end), horizon)


def within(known_until: int, horizon: int, gap: int | None = None) -> Split:
    """The training and validation days of what was known when day `known_until` began; nothing is left to test on."""
    gap = horizon if gap is None else gap
    usable = known_until - gap - horizon
    if usable < 15:
        need = 15 + gap + horizon
        raise InputError(f"found failures known for {known_until} days; expected at least {need} for a horizon of {horizon} days")
    a = round(usable * TRAIN / (TRAIN + VALIDATE))
    return Split((MIN_DAYS - 1, a), (a + gap, usable + gap), (known_until, known_until), horizon)


def labels(fleet: Fleet, drive: Array, day: Array, horizon: int) -> Array:
    """Whether each drive fails within `horizon` days after each day."""
    failure = fleet.failure[drive]
    return (failure > day) & (failure <= day + horizon) & (failure < NEVER)
