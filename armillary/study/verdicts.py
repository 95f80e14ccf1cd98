"""A claim after a study: held, held in part, not held (with the figure), or not tried (with the reason).

With [L, U] the interval, f the figure, c the least that counts as held and z the value of no effect:
held is f ≥ c and L > z; held in part is L > z with f < c, or held on some of several kinds of case and reversed (U < z) on none, or
a level met by f alone; everything else that was tried is not held. Where c is below z ("at least 0.9 of the best"), c takes the
place of z: held is L ≥ c, held in part f ≥ c. Three cases, or five measured repeats, are the least for *held*.
No correction is made for judging many claims at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.arena import Metric
from armillary.claim import Claim, Exponent, Gain, Kind, Level, Parity, Wins, percent_of_ratio
from armillary.records import HELD, IN_PART, NOT_HELD, NOT_TRIED
from armillary.study.gains import LEVEL, RESAMPLES, SEED, Interval, gains, interval

if TYPE_CHECKING:
    from armillary.study.result import Result

ENOUGH_CASES, ENOUGH_REPEATS = 3, 5


@dataclass(frozen=True)
class Verdict:
    """What became of a claim, with everything needed to judge it again."""

    claim: str
    technique: str
    says: str
    published: str
    state: str
    #: The figure as people read it (percent, ratio, level), with its interval; None when not tried.
    figure: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    #: measured, simulated or modelled.
    kind: str = ""
    n: int = 0
    reason: str = ""
    rule: str = ""
    #: What counts as held on our cases, and why, where that is not the published figure.
    honest: str = ""
    stand_in: str | None = None
    by_case: Mapping[str, float] = field(default_factory=dict)
    undefined: int = 0
    resamples: int = RESAMPLES
    seed: int = SEED

    def json(self) -> dict[str, Any]:
        """The verdict as plain data."""
        return asdict(self)

    @property
    def state_in_words(self) -> str:
        """The state, with the stand-in that it rests on."""
        return f"{self.state}, with a stand-in {self.stand_in}" if self.stand_in and self.state != NOT_TRIED else self.state

    @property
    def ours(self) -> str:
        """The figure with its interval, as text."""
        if self.figure is None:
            return "–"
        around = "" if self.low is None or self.high is None else f" ({_number(self.low)} to {_number(self.high)})"
        return f"{_number(self.figure)}{self.unit}{around}"


@dataclass(frozen=True)
class _Judged:
    """One kind of case judged: state, why, and the interval in the unit of the rule."""

    state: str
    rule: str
    interval: Interval | None = None
    no_effect: float = 0.0
    by_case: Mapping[str, float] = field(default_factory=dict)
    undefined: int = 0

    @property
    def reversed(self) -> bool:
        return self.interval is not None and self.interval.high < self.no_effect


def judge(claim_id: str, technique: str, claim: Claim, result: Result) -> Verdict:
    """The verdict on one claim from the values of a study."""
    metric = result.arena.metrics[claim.metric]
    honest = "" if claim.honest is None else f"{_bounds(claim)} counts as held: {claim.why}"
    blank = Verdict(claim_id, technique, claim.says, _published(claim), NOT_TRIED, honest=honest, stand_in=claim.stand_in)
    if claim.circular:
        return replace(blank, reason=f"used as input: {claim.circular}")
    if claim.needs:
        return replace(blank, reason=f"needs {claim.needs}")
    missing = _missing(technique, claim, result)
    if missing:
        return replace(blank, reason=missing)
    cases = {case for kind in claim.kinds for case in result.cases_of(kind)}
    kinds_of_value = {k for name in (technique, *claim.baselines) for k in result.kinds(name, claim.metric, cases)}
    if len(kinds_of_value) != 1:
        return replace(blank, reason=f"values of different kinds: {', '.join(sorted(kinds_of_value))}")
    judged = [_judge_kind(technique, claim, metric, kind, result) for kind in claim.kinds]
    final = _together(judged)
    if final.interval is None:
        return replace(blank, reason=final.rule, undefined=final.undefined)
    kind_of_value = kinds_of_value.pop()
    spread = final.interval
    final = _quiet(_enough(final, spread, kind_of_value == "measured"), technique, claim, result)
    unit, shown = _shown(claim, metric, spread)
    return replace(
        blank, state=final.state, figure=shown.figure, low=shown.low, high=shown.high, unit=unit, kind=kind_of_value,
        n=spread.cases, reason=final.rule, rule=final.rule, by_case=final.by_case, undefined=final.undefined,
    )  # fmt: skip


def _judge_kind(technique: str, claim: Claim, metric: Metric, kind: Kind, result: Result) -> _Judged:
    """The claim on the cases of one kind."""
    cases = result.cases_of(kind)
    ours = result.values(technique, claim.metric, cases)
    if not ours:
        return _Judged(NOT_TRIED, f"no case of kind {kind}")
    if isinstance(claim.by, Wins):
        return _wins(technique, claim, claim.by, result, cases)
    if isinstance(claim.by, Level):
        return _level(claim, claim.by, ours)
    if isinstance(claim.by, Exponent):
        return _exponent(claim.by, ours, result.case_parameter(claim.by.variable))
    theirs = _best_of(claim.baselines, claim.metric, metric, result, cases)
    found = gains(ours, theirs, metric.better or "higher", "ratio" if isinstance(claim.by, Parity) else metric.scale)
    spread = found.interval(claim.aggregate)
    if spread is None:
        return _Judged(NOT_TRIED, f"no pair to compare ({found.undefined} undefined)", undefined=found.undefined)
    if isinstance(claim.by, Parity):
        limit = 1 + claim.by.within
        inside = 1 / limit <= spread.low and spread.high <= limit
        near = 1 / limit <= spread.figure <= limit
        state = HELD if inside else IN_PART if near else NOT_HELD
        rule = f"interval {'inside' if inside else 'leaves'} 1/{limit:g} to {limit:g}"
        return _Judged(state, rule, spread, 1.0, found.medians(), found.undefined)
    if isinstance(claim.by, Gain) and (claim.by.difference is not None) == found.ratio:
        return _Judged(NOT_TRIED, f"a {'difference' if found.ratio else 'ratio'} cannot be judged on this metric's scale")
    return replace(_gain(claim, metric, spread, 1.0 if found.ratio else 0.0), by_case=found.medians(), undefined=found.undefined)


def _gain(claim: Claim, metric: Metric, spread: Interval, no_effect: float) -> _Judged:
    assert isinstance(claim.by, Gain)
    better = metric.better or "higher"
    held, _ = _converted(claim.by, claim.honest, better) if claim.honest else claim.by.bounds(better)
    part = None if claim.part is None else _converted(claim.by, (claim.part, None), better)[0]
    bound = -math.inf if held is None else held
    if bound < no_effect:
        return _no_worse(spread, bound, part)
    if spread.low <= no_effect:
        return _Judged(NOT_HELD, "the interval reaches no effect", spread, no_effect)
    if spread.figure >= bound * (1 - 1e-12) - 1e-15:
        return _Judged(HELD, "figure and interval are above the bound and no effect", spread, no_effect)
    if part is not None and spread.figure < part:
        return _Judged(NOT_HELD, "better, but by less than counts in part", spread, no_effect)
    return _Judged(IN_PART, "better, but by less than the bound", spread, no_effect)


def _no_worse(spread: Interval, bound: float, part: float | None) -> _Judged:
    """A claim to be almost as good as the baseline: it is the bound, not the absence of an effect, that has to be kept clear of."""
    if spread.low >= bound:
        return _Judged(HELD, "the whole interval is above the bound", spread, bound)
    if spread.figure >= (bound if part is None else min(part, bound)):
        return _Judged(IN_PART, "the figure is above what counts, the interval is not above the bound", spread, bound)
    return _Judged(NOT_HELD, "the figure is below the bound", spread, bound)


def _level(claim: Claim, by: Level, ours: Mapping[str, Mapping[int, float]]) -> _Judged:
    arrays = {case: np.array(list(repeats.values())) for case, repeats in ours.items()}
    aggregate = claim.aggregate
    flip = -1.0 if by.at_most is not None else 1.0
    spread = interval([flip * values for values in arrays.values()], log=False, aggregate=aggregate)
    published = flip * (by.at_most if by.at_most is not None else by.at_least or 0.0)
    bound = published
    if claim.honest is not None:
        edge = claim.honest[1] if by.at_most is not None else claim.honest[0]
        bound = flip * edge if edge is not None else published
    if spread.low >= bound:
        state, rule = HELD, "the whole interval meets the level"
    elif spread.figure >= bound:
        state, rule = IN_PART, "the figure meets the level, the interval does not"
    elif claim.part is not None and spread.figure >= flip * claim.part:
        state, rule = IN_PART, "the figure meets the lower level that counts in part"
    else:
        state, rule = NOT_HELD, "the figure misses the level"
    if flip < 0:
        spread = replace(spread, figure=-spread.figure, low=-spread.high, high=-spread.low)
    return _Judged(state, rule, spread, -math.inf, {case: float(np.median(values)) for case, values in arrays.items()})


def _exponent(by: Exponent, ours: Mapping[str, Mapping[int, float]], variable: Mapping[str, float]) -> _Judged:
    points = {c: repeats for c, repeats in ours.items() if variable.get(c, 0) > 0 and min(repeats.values()) > 0}
    if len({variable[case] for case in points}) < 2:
        return _Judged(NOT_TRIED, f"fewer than two values of {by.variable}")
    x = np.log([variable[case] for case in points])
    y = [np.log(list(repeats.values())) for repeats in points.values()]
    spread = _slope_interval(x, y)
    low = by.at_least if by.at_least is not None else -math.inf
    high = by.at_most if by.at_most is not None else math.inf
    if low <= spread.low and spread.high <= high:
        state, rule = HELD, "the whole interval meets the bound"
    elif low <= spread.figure <= high:
        state, rule = IN_PART, "the figure meets the bound, the interval does not"
    else:
        state, rule = NOT_HELD, "the exponent misses the bound"
    return _Judged(state, rule, spread, -math.inf, {case: float(np.median(list(r.values()))) for case, r in points.items()})


def _slope_interval(x: np.ndarray, y: Sequence[np.ndarray]) -> Interval:
    """The least-squares slope through per-case medians; interval from resampling cases and their repeats."""
    rng = np.random.Generator(np.random.PCG64DXSM(SEED))
    resamples = 2_000
    medians = np.array([np.median(values) for values in y])
    figure = float(np.polyfit(x, medians, 1)[0])
    which = rng.integers(0, len(x), (resamples, len(x)))
    drawn = np.stack([np.median(rng.choice(values, (resamples, len(values))), axis=1) for values in y], axis=1)
    ys, xs = np.take_along_axis(drawn, which, 1), x[which]
    dx = xs - xs.mean(1, keepdims=True)
    spread = (dx**2).sum(1)
    usable = spread > 1e-12
    slopes = (dx * ys).sum(1)[usable] / spread[usable]
    low, high = np.quantile(slopes, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(figure, float(low), float(high), len(x), max(len(values) for values in y))


def _wins(technique: str, claim: Claim, by: Wins, result: Result, cases: Sequence[str]) -> _Judged:
    won = result.winners(claim.metric, cases, ties=False)
    share = {case: np.array([float(technique in best)]) for case, best in won.items()}
    if not share:
        return _Judged(NOT_TRIED, "no case has values of every technique")
    spread = interval(list(share.values()), log=False)
    bound = claim.honest[0] if claim.honest is not None and claim.honest[0] is not None else by.share
    if spread.figure >= bound:
        state, rule = HELD, "best on enough cases"
    elif claim.part is not None and spread.figure >= claim.part:
        state, rule = IN_PART, "best on as many cases as count in part"
    else:
        state, rule = NOT_HELD, "best on too few cases"
    return _Judged(state, rule, spread, -math.inf, {case: float(values[0]) for case, values in share.items()})


def _together(judged: Sequence[_Judged]) -> _Judged:
    """One state from several kinds of case."""
    if len(judged) == 1:
        return judged[0]
    tried = [j for j in judged if j.interval is not None]
    if len(tried) < len(judged):
        return next(j for j in judged if j.interval is None)
    by_case = {case: gain for j in tried for case, gain in j.by_case.items()}
    undefined = sum(j.undefined for j in tried)
    worst = min(tried, key=lambda j: j.interval.figure)  # type: ignore[union-attr]
    states = {j.state for j in tried}
    if states == {HELD}:
        return replace(worst, rule="held on every kind of case", by_case=by_case, undefined=undefined)
    if (HELD in states or IN_PART in states) and not any(j.reversed for j in tried):
        rule = "held on some kinds of case, reversed on none"
        return replace(worst, state=IN_PART, rule=rule, by_case=by_case, undefined=undefined)
    return replace(worst, state=NOT_HELD, rule="not held on every kind of case", by_case=by_case, undefined=undefined)


def _enough(judged: _Judged, spread: Interval, measured: bool) -> _Judged:
    """Few cases and few repeats cannot hold a claim."""
    many = spread.cases >= ENOUGH_CASES or (measured and spread.repeats >= ENOUGH_REPEATS)
    return judged if many or judged.state != HELD else replace(judged, state=IN_PART, rule="few cases")


def _quiet(judged: _Judged, technique: str, claim: Claim, result: Result) -> _Judged:
    """What was measured mostly on a disturbed machine, or in rounds far apart, cannot hold a claim."""
    cases = {case for kind in claim.kinds for case in result.cases_of(kind)}
    repeats = [(case, repeat) for case, row in result.values(technique, claim.metric, sorted(cases)).items() for repeat in row]
    noisy = sum(repeat in result.noisy(technique, claim.metric, case) for case, repeat in repeats)
    return replace(judged, state=IN_PART, rule="most units were noisy") if judged.state == HELD and 2 * noisy > len(repeats) else judged


def _best_of(baselines: Sequence[str], name: str, metric: Metric, result: Result, cases: Sequence[str]) -> dict[str, dict[int, float]]:
    """The best baseline's value on each case and repeat."""
    best: dict[str, dict[int, float]] = {}
    pick = min if metric.better == "lower" else max
    for baseline in baselines:
        for case, repeats in result.values(baseline, name, cases).items():
            for repeat, value in repeats.items():
                row = best.setdefault(case, {})
                row[repeat] = pick(row[repeat], value) if repeat in row else value
    return best


def _missing(technique: str, claim: Claim, result: Result) -> str:
    """Why the claim cannot be judged from this study, or an empty string."""
    needed = (technique, *claim.baselines)
    for name in needed:
        if name not in result.techniques:
            return f"{name} was not run"
    cases = {case for kind in claim.kinds for case in result.cases_of(kind)}
    if not cases:
        return "no case of kind " + ", ".join(str(kind) for kind in claim.kinds)
    for unit in result.units:
        if unit["technique"] in needed and unit["case"] in cases:
            if unit["state"] != "done":
                why = unit["reason"] or unit["error"] or ""
                return f"{unit['technique']} on {unit['case']} {unit['state']}{': ' + why if why else ''}"
            if unit["stale"]:
                return f"{unit['technique']} on {unit['case']} is stale: its code changed since"
    return ""


def _converted(by: Gain, bounds: tuple[float | None, float | None], better: str) -> tuple[float | None, float | None]:
    """Bounds given in the unit of `by`, as gains."""
    unit = "percent" if by.percent else "ratio" if by.ratio else "difference"
    return Gain(**{unit: (bounds[0] if bounds[0] is not None else 0.0, bounds[1])}).bounds(better)


def _shown(claim: Claim, metric: Metric, spread: Interval) -> tuple[str, Interval]:
    """The interval in the unit that the claim is stated in."""
    if isinstance(claim.by, Gain) and claim.by.percent is not None:
        figure, low, high = (percent_of_ratio(v, metric.better or "higher") for v in (spread.figure, spread.low, spread.high))
        return " %", replace(spread, figure=figure, low=low, high=high)
    if isinstance(claim.by, Wins):
        return " %", replace(spread, figure=100 * spread.figure, low=100 * spread.low, high=100 * spread.high)
    if isinstance(claim.by, Gain | Parity) and metric.scale == "ratio":
        return "×", spread
    return f" {metric.unit}" if metric.unit else "", spread


def _published(claim: Claim) -> str:
    over = f" than {' or '.join(claim.baselines)}" if claim.baselines else ""
    by = f"up to {str(claim.by).removeprefix('≥ ')}" if claim.aggregate == "max" else str(claim.by)
    better = " better" if over and not by.endswith("better") and not isinstance(claim.by, Parity) else ""
    return f"{by}{better}{over.replace(' than', ' of') if isinstance(claim.by, Parity) else over}"


def _bounds(claim: Claim) -> str:
    low, high = claim.honest or (None, None)
    return f"{'' if low is None else f'{low:g}'} to {'any' if high is None else f'{high:g}'}"


def _number(value: float) -> str:
    return f"{value:.3g}"
