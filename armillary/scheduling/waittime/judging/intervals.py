"""Intervals for any point prediction: split-conformal, in the logarithm of the wait, per size class."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from armillary.learn.calibration import Conformal
from armillary.scheduling.waittime.features.logarithm import expm1, ln1p

Floats = npt.NDArray[np.float64]
#: The first sizes of the classes after the smallest, in nodes (Brevik, Nurmi and Wolski, IISWC 2006): 1-4, 5-16, 17-64, more.
CLASS_EDGES = (5, 17, 65)
#: What an interval covers.
COVERAGE = 0.9


def size_class(nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The size class of each job, from 0 (at most 4 nodes) to 3 (more than 64)."""
    return np.digitize(nodes, CLASS_EDGES).astype(np.int64)


def calibrated(prediction_s: Floats, wait_s: Floats, nodes: npt.NDArray[np.int64], coverage: float = COVERAGE) -> Conformal:
    """Radii in ln(1 + s), per size class, from predictions that training has not seen; a small class takes the radius of all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return Conformal.fit(ln1p(prediction_s), ln1p(wait_s), coverage=coverage, groups=size_class(nodes))


def interval(around: Conformal, prediction_s: Floats, nodes: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """(lower, upper) seconds of the wait."""
    low, high = around(ln1p(prediction_s), size_class(nodes))
    return expm1(np.maximum(low, 0.0)), expm1(np.minimum(high, 700.0))
