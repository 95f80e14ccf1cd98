"""Sizes and durations: lognormal, Pareto, Weibull, or as measured. Units are those of the parameters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.files import Column, read_table
from armillary.files.opening import Name

from .checks import Floats, Ints, positive

Size = int | tuple[int, ...]


def lognormal(
    rng: np.random.Generator, size: Size, *, median: npt.ArrayLike | None = None, mean: npt.ArrayLike | None = None,
    mu: float | None = None, sigma: float | None = None, cv: float | None = None,
) -> Floats:  # fmt: skip
    """Values X with ln X ~ N(mu, sigma²), given one of three locations and one of two spreads.

    - median: X = median·exp(σZ);
    - mean: X = mean·exp(σZ − σ²/2);
    - mu: `rng.lognormal(mu, σ)`.

    sigma is the standard deviation of ln X; cv, the coefficient of variation of X, gives σ² = ln(1 + cv²). Z is
    `rng.standard_normal(size)`. Median and mean may be arrays that broadcast to the size.
    """
    if sum(x is not None for x in (median, mean, mu)) != 1 or (sigma is None) == (cv is None):
        raise InputError("lognormal: expected one of median, mean and mu, and one of sigma and cv")
    spread = math.sqrt(math.log1p(positive("cv", cv) ** 2)) if sigma is None else sigma
    if not (math.isfinite(spread) and spread >= 0):
        raise InputError(f"sigma: found {sigma}; expected a number of at least 0")
    if mu is not None:
        return rng.lognormal(mu, spread, size)
    scale: Any = np.asarray(median if median is not None else mean, np.float64)
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise InputError(f"{'median' if median is not None else 'mean'}: expected positive numbers")
    if median is not None:
        return np.asarray(scale * np.exp(spread * rng.standard_normal(size)))
    return np.asarray(scale * np.exp(spread * rng.standard_normal(size) - spread**2 / 2))


def pareto(rng: np.random.Generator, size: Size, *, shape: float, least: float) -> Floats:
    """Values of at least `least` with P(X > x) = (least/x)^shape: X = least·(1 − U)^(−1/shape), U from `rng.random(size)`.

    The mean is shape·least/(shape − 1), and infinite for a shape of at most 1. Sizes of web files have a shape near 1.1
    (Crovella and Bestavros, Self-similarity in World Wide Web traffic, 1997).
    """
    return positive("least", least) * (1 - rng.random(size)) ** (-1 / positive("shape", shape))


def bounded_pareto(rng: np.random.Generator, size: Size, *, shape: float, least: float, most: float) -> Floats:
    """Values in [least, most] with a density proportional to x^(−shape − 1).

    By inversion: X = least·(1 − U·(1 − (least/most)^shape))^(−1/shape), U from `rng.random(size)`.

    Harchol-Balter, Crovella and Murta, On choosing a task assignment policy for a distributed server system, 1999.
    """
    if not positive("least", least) <= positive("most", most):
        raise InputError(f"least, most: found {least} and {most}; expected the smaller first")
    share = 1 - (least / most) ** positive("shape", shape)
    return np.minimum(least * (1 - rng.random(size) * share) ** (-1 / shape), most)


def weibull(rng: np.random.Generator, size: Size, *, shape: float, mean: float) -> Floats:
    """Values with P(X > x) = exp(−(x/scale)^shape), scale = mean/Γ(1 + 1/shape): `scale·rng.weibull(shape, size)`."""
    return positive("mean", mean) / math.gamma(1 + 1 / positive("shape", shape)) * rng.weibull(shape, size)


def quantiles(rng: np.random.Generator, size: Size, values: npt.ArrayLike, shares: npt.ArrayLike) -> Floats:
    """Values of a distribution known by its quantiles: `values[k]` at `shares[k]`, linear in between.

    X = F⁻¹(U), U from `rng.random(size)`. Shares increase from 0 to 1, and values do not decrease.
    """
    x, p = np.asarray(values, np.float64), np.asarray(shares, np.float64)
    if x.shape != p.shape or x.ndim != 1 or len(x) < 2 or p[0] != 0 or p[-1] != 1 or (np.diff(p) <= 0).any() or (np.diff(x) < 0).any():
        raise InputError("values, shares: expected as many of one as of the other, shares that increase from 0 to 1, sorted values")
    return np.asarray(np.interp(rng.random(size), p, x))


def empirical(rng: np.random.Generator, size: Size, values: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> npt.NDArray[Any]:
    """Values drawn with replacement from those that were measured, equally often or in proportion to `weights`.

    The draws are those of `rng.choice(values, size, p=weights/Σ)`.
    """
    found = np.asarray(values)
    if found.ndim != 1 or not len(found):
        raise InputError("values: expected a list of at least one")
    if weights is None:
        return np.asarray(rng.choice(found, size))
    p = np.asarray(weights, np.float64)
    if p.shape != found.shape or not np.isfinite(p).all() or p.min() < 0 or p.sum() <= 0:
        raise InputError("weights: expected one number of at least 0 for each value, not all 0")
    return np.asarray(rng.choice(found, size, p=p / p.sum()))


def read_values(path: Name, column: str, *, unit: str = "") -> Floats:
    """One column of numbers of at least 0 from a table (CSV, TSV, JSON lines or Parquet), for `empirical`."""
    return np.asarray(read_table(path, [Column(column, "float", unit=unit, least=0)])[column])


def whole(values: npt.ArrayLike, least: int = 1, most: int = 1 << 62) -> Ints:
    """The values rounded to whole numbers (half to even) within [least, most]."""
    return np.clip(np.rint(np.asarray(values)), least, most).astype(np.int64)
