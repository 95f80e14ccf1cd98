"""Checks of what Python callers pass, in the words of the command line."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeVar

from armillary.errors import InputError

T = TypeVar("T")


def names(given: str | Iterable[T] | None) -> list[T] | None:
    """A list of names or objects; one text is split at its commas, as on the command line."""
    if given is None:
        return None
    if isinstance(given, str):
        return [part.strip() for part in given.split(",") if part.strip()]  # type: ignore[misc]
    return list(given)


def whole(option: str, value: object, low: int, high: int) -> None:
    """Refuses what is not a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        limit = f"{high}" if high < 2**32 else "2**63 - 1"
        raise InputError(f"{option} {value!r}: expected a whole number from {low} to {limit}")


def seconds(option: str, value: float | None) -> None:
    """Refuses what is neither None nor a time above 0."""
    if value is not None and not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
        raise InputError(f"{option} {value!r}: expected a number of seconds above 0")
