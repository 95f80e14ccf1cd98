"""What a paper says, in a form that a study can judge.

A claim names a metric, the technique it is measured against, the kind of case it is made for and the figure. The figure that
counts as *held* stands here, beside the technique, before the first run: either the published one, or `honest` where the paper's
machine is not ours, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Bounds = tuple[float | None, float | None]


@dataclass(frozen=True)
class Kind:
    """The cases that carry all of `tags`; `Kind()` is every case."""

    tags: tuple[str, ...]

    def __init__(self, *tags: str) -> None:
        object.__setattr__(self, "tags", tags)

    def takes(self, kinds: Iterable[str]) -> bool:
        """Whether a case of these kinds is meant."""
        return set(self.tags) <= set(kinds)

    def __str__(self) -> str:
        return "+".join(self.tags) or "all cases"


@dataclass(frozen=True)
class Gain:
    """Better than the baseline by a factor, a percentage or a difference; give exactly one, as (low, high), high may be None.

    `percent` is a reduction for lower-is-better metrics (40 % lower is a ratio of 1/(1 - 0.4)) and an increase for
    higher-is-better ones (40 % higher is a ratio of 1.4). `difference` is in the metric's unit.
    """

    ratio: Bounds | None = None
    percent: Bounds | None = None
    difference: Bounds | None = None

    def __post_init__(self) -> None:
        given = [bounds for bounds in (self.ratio, self.percent, self.difference) if bounds is not None]
        if len(given) != 1 or given[0][0] is None:
            raise TypeError("a Gain takes exactly one of ratio, percent or difference, each as (low, high)")

    def bounds(self, better: str) -> Bounds:
        """(low, high) as the study computes gains: ratios for ratio metrics, differences otherwise."""
        if self.percent is None:
            return self.ratio or self.difference or (None, None)
        low, high = (None if p is None else ratio_of_percent(p, better) for p in self.percent)
        return low, high

    def __str__(self) -> str:
        if self.percent is not None:
            return _range(self.percent, " %")
        if self.ratio is not None:
            return _range(self.ratio, "×")
        return _range(self.difference or (None, None), " better")


@dataclass(frozen=True)
class Level:
    """The metric itself is at least, or at most, this much (mean over cases; no baseline)."""

    at_least: float | None = None
    at_most: float | None = None

    def __post_init__(self) -> None:
        if (self.at_least is None) == (self.at_most is None):
            raise TypeError("give exactly one of at_least and at_most")

    def __str__(self) -> str:
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"


@dataclass(frozen=True)
class Exponent:
    """The metric grows as variable**e with e at least, or at most, this much: the slope of log metric over log case parameter."""

    variable: str
    at_least: float | None = None
    at_most: float | None = None

    def __post_init__(self) -> None:
        if (self.at_least is None) == (self.at_most is None):
            raise TypeError("give exactly one of at_least and at_most")

    def __str__(self) -> str:
        bound = f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"
        return f"exponent of {self.variable} {bound}"


@dataclass(frozen=True)
class Parity:
    """Comparable with the baseline: the whole interval of the ratio lies within a factor 1 + within either way."""

    within: float = 0.1

    def __str__(self) -> str:
        return f"within {100 * self.within:g} %"


@dataclass(frozen=True)
class Wins:
    """Best of all techniques that do not know the future, on at least this share of the cases; a near tie with the best is no win."""

    share: float

    def __str__(self) -> str:
        return f"best on ≥ {100 * self.share:g} % of cases"


By = Gain | Level | Exponent | Parity | Wins


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper that a study can hold or not hold.

    `over` is the baseline, or several of which the best on each case counts; None for Level, Exponent and Wins. `on` is one kind of
    case or several. The mean over cases is geometric for ratios; `aggregate="arithmetic"` takes the mean of the cases' ratios, where a
    paper does, and `aggregate="max"` reads "up to": the best case counts. `honest=(low, high)` is what counts as held on our
    cases, `part` the least that counts as held in part, both in the unit of `by` and explained in `why`. `circular` marks a
    figure that calibrates our model and so cannot be a verdict on it; `needs` names hardware without which the claim is not
    tried; `stand_in` what stands for a part that could not be had, and is said in the verdict. `scale` is the scale of the built-in
    work that the claim is made for: smaller work shows its figure and judges nothing.
    """

    metric: str
    over: str | tuple[str, ...] | None = None
    by: By = Gain(ratio=(1.0, None))
    on: Kind | tuple[Kind, ...] = Kind()
    says: str = ""
    source: str = ""
    aggregate: Literal["mean", "arithmetic", "max"] = "mean"
    honest: Bounds | None = None
    part: float | None = None
    why: str = ""
    circular: str | None = None
    needs: str | None = None
    stand_in: str | None = None
    scale: Literal["small", "large"] = "small"

    def __post_init__(self) -> None:
        relative = isinstance(self.by, Gain | Parity)
        if relative != bool(self.over):
            raise TypeError(f"{type(self.by).__name__} {'needs' if relative else 'takes no'} baseline in `over`")
        if (self.honest or self.part is not None) and not self.why:
            raise TypeError("an honest or partial bound needs its reason in `why`")
        if isinstance(self.by, Exponent | Parity) and (self.honest or self.part is not None):
            raise TypeError("Exponent and Parity carry their bound themselves")

    @property
    def baselines(self) -> tuple[str, ...]:
        """The techniques in `over`, as a tuple."""
        return () if self.over is None else (self.over,) if isinstance(self.over, str) else self.over

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds in `on`, as a tuple."""
        return self.on if isinstance(self.on, tuple) else (self.on,)


def ratio_of_percent(percent: float, better: str) -> float:
    """The gain as a ratio: 40 % lower is 1.667, 40 % higher is 1.4; 100 % lower has no ratio and gives inf."""
    if better == "lower":
        return float("inf") if percent >= 100 else 1 / (1 - percent / 100)
    return 1 + percent / 100


def percent_of_ratio(ratio: float, better: str) -> float:
    """The inverse of `ratio_of_percent`."""
    return 100 * (1 - 1 / ratio) if better == "lower" else 100 * (ratio - 1)


def _range(bounds: Bounds, unit: str) -> str:
    low, high = bounds
    return f"≥ {low:g}{unit}" if high is None else f"{low:g} to {high:g}{unit}"
