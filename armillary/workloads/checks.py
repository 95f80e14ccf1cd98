"""Checks of the numbers that a distribution is given."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def positive(name: str, value: float | None) -> float:
    """`value` if it is a finite number above 0."""
    if value is None or not (value > 0 and math.isfinite(value)):
        raise InputError(f"{name}: found {value}; expected a positive number")
    return float(value)


def count(name: str, value: int, least: int = 0) -> int:
    """`value` if it is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name}: found {value}; expected a whole number of at least {least}")
    return int(value)
