"""What is done to a model's answers after training: probabilities that mean what they say, and intervals that cover what they promise.

Nothing here needs PyTorch. What is learned are a few numbers, which a model file holds as arrays.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from armillary.errors import InputError

Array = np.ndarray[Any, np.dtype[np.float64]]
#: A group with fewer calibration points gets the pooled interval.
FEWEST = 20


@dataclass(frozen=True)
class Platt:
    """`σ(a·logit + b)`, fitted by maximum likelihood with Platt's smoothed targets."""

    a: float
    b: float

    @classmethod
    def fit(cls, logits: Any, labels: Any) -> Platt:
        """Fits a and b to logits and labels of 0 and 1 by Newton's method."""
        x, y = np.asarray(logits, np.float64).ravel(), np.asarray(labels, np.float64).ravel()
        _same_length(x, y)
        positive = float(y.sum())
        negative = len(y) - positive
        target = np.where(y > 0.5, (positive + 1) / (positive + 2), 1 / (negative + 2))
        a, b = 1.0, 0.0
        for _ in range(100):
            p = _sigmoid(a * x + b)
            g = np.array(((p - target) @ x, (p - target).sum()))
            w = np.maximum(p * (1 - p), 1e-12)
            hessian = np.array(((w @ (x * x) + 1e-9, w @ x), (w @ x, w.sum() + 1e-9)))
            step = np.linalg.solve(hessian, g)
            length = float(np.abs(step).max())
            a, b = (np.array((a, b)) - step * min(1.0, 10.0 / max(length, 1e-300))).tolist()
            if length < 1e-10:
                break
        return cls(a, b)

    def __call__(self, logits: Any) -> Array:
        """The calibrated probabilities."""
        return _sigmoid(self.a * np.asarray(logits, np.float64) + self.b)


@dataclass(frozen=True)
class Isotonic:
    """A step-wise linear map that never falls: `values` at `knots`, constant outside."""

    knots: Array
    values: Array

    @classmethod
    def fit(cls, scores: Any, labels: Any, weights: Any = None) -> Isotonic:
        """Pools adjacent violators: the non-decreasing values nearest to the labels, in squares, each counted `weights` times if given."""
        from scipy.optimize import isotonic_regression

        x, y = np.asarray(scores, np.float64).ravel(), np.asarray(labels, np.float64).ravel()
        _same_length(x, y)
        w = np.ones(len(x)) if weights is None else np.asarray(weights, np.float64).ravel()
        _same_length(x, w)
        knots, inverse = np.unique(x, return_inverse=True)
        counts = np.bincount(inverse, w)
        found = isotonic_regression(np.bincount(inverse, w * y) / counts, weights=counts).x
        keep = np.ones(len(knots), bool)
        keep[1:-1] = (found[1:-1] != found[:-2]) | (found[1:-1] != found[2:])
        return cls(knots[keep], np.asarray(found)[keep])

    def __call__(self, scores: Any) -> Array:
        """The calibrated values."""
        return np.asarray(np.interp(np.asarray(scores, np.float64), self.knots, self.values))


@dataclass(frozen=True)
class Conformal:
    """Intervals `prediction ± radius` that cover the truth with probability `coverage`, if new data are exchangeable with the calibration.

    The radius is the ⌈(n + 1)·coverage⌉-th smallest absolute error of the calibration data, per group where groups are given.
    """

    coverage: float
    radius: float
    by_group: dict[int, float] = field(default_factory=dict)
    #: The groups that have fewer than 20 calibration points and therefore get the pooled radius.
    pooled: tuple[int, ...] = ()

    @classmethod
    def fit(cls, prediction: Any, truth: Any, *, coverage: float = 0.9, groups: Any = None) -> Conformal:
        """Takes the radius from predictions and truths that training did not see; says which groups fall back to the pooled interval."""
        if not 0 < coverage < 1:
            raise InputError(f"coverage: found {coverage}; expected a value between 0 and 1")
        p, y = np.asarray(prediction, np.float64).ravel(), np.asarray(truth, np.float64).ravel()
        _same_length(p, y)
        errors = np.abs(p - y)
        radius = _quantile(errors, coverage)
        if groups is None:
            return cls(coverage, radius)
        g = np.asarray(groups).ravel()
        _same_length(p, g)
        by_group, few = {}, []
        for one in np.unique(g).tolist():
            of_group = errors[g == one]
            if len(of_group) < FEWEST:
                few.append(int(one))
            else:
                by_group[int(one)] = _quantile(of_group, coverage)
        if few:
            said = ", ".join(map(str, few[:10]))
            warnings.warn(f"groups with fewer than {FEWEST} calibration points get the pooled interval: {said}", stacklevel=2)
        return cls(coverage, radius, by_group, tuple(few))

    def __call__(self, prediction: Any, groups: Any = None) -> tuple[Array, Array]:
        """(lower, upper) ends of the intervals; a group that was not calibrated gets the pooled radius."""
        p = np.asarray(prediction, np.float64)
        if groups is None:
            return p - self.radius, p + self.radius
        r = np.vectorize(lambda one: self.by_group.get(int(one), self.radius), otypes=[np.float64])(np.asarray(groups))
        return p - r, p + r


def uncrossed(raw: Any) -> Array:
    """The quantiles that a network trained with `pinball` gives, [..., levels], from its raw outputs: `quantiles` without PyTorch."""
    given = np.asarray(raw, np.float64)
    first = given[..., :1]
    return np.concatenate([first, first + np.cumsum(np.logaddexp(0.0, given[..., 1:]), -1)], -1)


def _quantile(errors: Array, coverage: float) -> float:
    n = len(errors)
    rank = int(np.ceil((n + 1) * coverage - 1e-9))
    # With too few points no finite radius keeps the promise; the largest error is the best there is.
    return float(np.partition(errors, min(rank, n) - 1)[min(rank, n) - 1])


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (np.tanh(0.5 * x) + 1))


def _same_length(x: Any, y: Any) -> None:
    if len(x) != len(y) or len(x) == 0:
        raise InputError(f"found {len(x)} and {len(y)} values; expected as many of one as of the other, and at least one")
