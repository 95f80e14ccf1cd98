"""A claim after a study: held, held in part, not held (with the figure), or not tried (with the reason).

With [L, U] the interval, f the figure, c the least that counts as held and z the value of no effect:
held is f ≥ c and L > z; held in part is L > z with f < c, or held on some of several kinds of case and reversed (U < z) on none, or
a level met by f alone; everything else that was tried is not held. Where c is below z ("at least 0.9 of the best"), c takes the
place of z: held is L ≥ c, held in part f ≥ c. A level over several kinds of case is judged on the worst of them. A figure above the
published range is held, and the verdict says that it lies beyond. With fewer than four cases nothing is held, because no interval can
be trusted then. No correction is made for judging many claims at once. What is no whole evidence for the claim (`evidence.py`) shows
its figure and stays not tried.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.arena import Metric
from armillary.claim import Claim, Exponent, Gain, Kind, Level, Parity, Wins, percent_of_ratio
from armillary.records import HELD, IN_PART, NOT_HELD, NOT_TRIED
from armillary.report_card import figure, number, state_in_words
from armillary.study import evidence
from armillary.study.gains import LEVEL, Interval, gains, interval

if TYPE_CHECKING:
    from armillary.study.result import Result

ENOUGH_CASES = 4


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
    #: Whether the study is the whole evidence for the claim; only then is there a state, and only then is it stored.
    whole: bool = True
    #: Whether the figure lies above the range that counts as held: a sign that work or rival are not the paper's.
    beyond: bool = False
    #: The figure on each kind of case, where the claim is made for several.
    by_kind: Mapping[str, float] = field(default_factory=dict)
    #: The techniques that it is compared with.
    over: tuple[str, ...] = ()
    #: What the claim is but for its rival: equal for claims that say the same against several rivals.
    family: str = ""

    def json(self) -> dict[str, Any]:
        """The verdict as plain data."""
        return asdict(self)

    @property
    def state_in_words(self) -> str:
        """The state, with the stand-in that it rests on, and whether the figure lies beyond the published range."""
        return state_in_words(self.state, self.beyond, self.stand_in)

    @property
    def ours(self) -> str:
        """The figure with its interval, as text."""
        return figure({name: getattr(self, name) for name in ("figure", "low", "high", "unit")})


@dataclass(frozen=True)
class _Judged:
    """One kind of case judged: state, why, and the interval in the unit of the rule."""

    state: str
    rule: str
    interval: Interval | None = None
    no_effect: float = 0.0
    by_case: Mapping[str, float] = field(default_factory=dict)
    undefined: int = 0
    beyond: bool = False

    @property
    def reversed(self) -> bool:
        return self.interval is not None and self.interval.high < self.no_effect


def families(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Verdicts in their order, those together that say the same against one rival each."""
    found: dict[str, list[Verdict]] = {}
    for v in verdicts:
        found.setdefault(v.family if v.family and len(v.over) == 1 else v.claim, []).append(v)
    return list(found.values())


def family_says(family: Sequence[Verdict]) -> str:
    """What several claims say together: `19 % cheaper than each of 9 rivals`."""
    first = family[0]
    if len(family) == 1:
        return first.says or first.claim
    said, rivals = first.says or first.published, f"each of {len(family)} rivals"
    together = re.sub(rf"(?<![\w-]){re.escape(first.over[0])}(?![\w-])", rivals, said)
    return together if together != said else f"{said}, against {rivals}"


def family_ours(family: Sequence[Verdict]) -> str:
    """The least and the greatest figure of a family, each with its rival."""
    if len(family) == 1:
        return family[0].ours
    figures = sorted((v.figure, v.over[0], v.unit) for v in family if v.figure is not None)
    if not figures:
        return "–"
    (low, of_low, unit), (high, of_high, _) = figures[0], figures[-1]
    return f"{number(low)}{unit} ({of_low}) to {number(high)}{unit} ({of_high})"


def family_state(family: Sequence[Verdict]) -> str:
    """The state of a family: the one that all have, or how many have which."""
    states = [v.state_in_words for v in family]
    if len(set(states)) == 1:
        return states[0]
    return ", ".join(f"{state} against {states.count(state)}" for state in dict.fromkeys(states))


def judge(claim_id: str, technique: str, claim: Claim, result: Result, *, whole: bool = False) -> Verdict:
    """The verdict on one claim from the values of a study. `whole` takes the study for the whole evidence without looking."""
    metric = result.arena.metrics[claim.metric]
    blank = Verdict(claim_id, technique, claim.says, _published(claim), NOT_TRIED, honest=_counts(claim), stand_in=claim.stand_in)
    blank = replace(blank, over=claim.baselines, family=f"{technique} {replace(claim, over=claim.over and '*', says='', source='')}")
    if claim.circular:
        return replace(blank, reason=f"The published figure is an input of the model: {claim.circular}.")
    if claim.needs:
        return replace(blank, reason=f"It needs {claim.needs}.")
    lacking = "" if whole else evidence.partial(technique, claim, result)
    missing = evidence.impossible(technique, claim, result)
    if missing:
        return replace(blank, reason=f"It was not tried, because {missing}.", whole=not lacking)
    cases = {case for kind in claim.kinds for case in result.cases_of(kind)}
    names = [name for name in evidence.rivals(technique, claim, result) if name in result.techniques]
    kinds_of_value = {k for name in names for k in result.kinds(name, claim.metric, cases)}
    if len(kinds_of_value) != 1:
        return replace(blank, reason=f"The values are of different kinds: {', '.join(sorted(kinds_of_value))}.", whole=not lacking)
    judged = {kind: _judge_kind(technique, claim, metric, kind, result) for kind in claim.kinds}
    final = _together(judged, claim, metric)
    if final.interval is None:
        return replace(blank, reason=final.rule, undefined=final.undefined, whole=not lacking)
    spread = final.interval
    final = _quiet(_enough(final, spread), technique, claim, result)
    unit, shown = _shown(claim, metric, spread)
    by_kind = {str(k): _shown(claim, metric, j.interval)[1].figure for k, j in judged.items() if j.interval} if len(judged) > 1 else {}
    found = replace(
        blank, state=final.state, figure=shown.figure, low=shown.low, high=shown.high, unit=unit, kind=kinds_of_value.pop(),
        n=spread.cases, reason=final.rule, rule=final.rule, by_case=final.by_case, undefined=final.undefined, by_kind=by_kind,
        beyond=final.beyond and final.state == HELD,
    )  # fmt: skip
    if lacking:
        return replace(found, state=NOT_TRIED, reason=f"The figure is not judged, because {lacking}.", whole=False, beyond=False)
    return found


def _judge_kind(technique: str, claim: Claim, metric: Metric, kind: Kind, result: Result) -> _Judged:
    """The claim on the cases of one kind."""
    cases = result.cases_of(kind)
    ours = result.values(technique, claim.metric, cases)
    if not ours:
        return _Judged(NOT_TRIED, f"No case of kind {kind} was run.")
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
        why = f" ({found.undefined} undefined, because a value is zero or not finite)" if found.undefined else ""
        return _Judged(NOT_TRIED, f"There is no pair of values to compare{why}.", undefined=found.undefined)
    if isinstance(claim.by, Parity):
        limit = 1 + claim.by.within
        inside = 1 / limit <= spread.low and spread.high <= limit
        near = 1 / limit <= spread.figure <= limit
        state = HELD if inside else IN_PART if near else NOT_HELD
        where = f"1/{limit:g} to {limit:g}"
        rule = (
            f"The whole interval lies within {where}."
            if inside
            else f"The ratio lies within {where}, but its interval ({number(spread.low)} to {number(spread.high)}) leaves it."
            if near
            else f"The ratio lies outside {where}."
        )
        return _Judged(state, rule, spread, 1.0, found.medians(), found.undefined)
    if isinstance(claim.by, Gain) and (claim.by.difference is not None) == found.ratio:
        return _Judged(NOT_TRIED, f"A {'difference' if found.ratio else 'ratio'} cannot be judged on this metric's scale.")
    return replace(_gain(claim, metric, spread, 1.0 if found.ratio else 0.0), by_case=found.medians(), undefined=found.undefined)


def _gain(claim: Claim, metric: Metric, spread: Interval, no_effect: float) -> _Judged:
    assert isinstance(claim.by, Gain)
    better = metric.better or "higher"
    held, most = claim.by.bounds(better)
    if claim.honest is not None:
        held, highest = _converted(claim.by, claim.honest, better)
        most = most if highest is None else highest
    part = None if claim.part is None else _converted(claim.by, (claim.part, None), better)[0]
    bound = -math.inf if held is None else held
    beyond = most is not None and spread.figure > most * (1 + 1e-9) + 1e-12
    if bound < no_effect:
        return _no_worse(spread, bound, part)
    if spread.high < no_effect:
        return _Judged(NOT_HELD, "It is worse: the whole interval lies on the wrong side of no effect.", spread, no_effect)
    if spread.low <= no_effect:
        return _Judged(NOT_HELD, "The interval includes no effect.", spread, no_effect)
    if spread.figure >= bound * (1 - 1e-12) - 1e-15:
        rule = "The figure reaches what counts as held, and the interval excludes no effect."
        return _Judged(HELD, rule, spread, no_effect, beyond=beyond)
    if part is not None and spread.figure < part:
        return _Judged(NOT_HELD, "It is better, but by less than counts even in part.", spread, no_effect)
    return _Judged(IN_PART, "It is better, but by less than counts as held.", spread, no_effect)


def _no_worse(spread: Interval, bound: float, part: float | None) -> _Judged:
    """A claim to be almost as good as the baseline: it is the bound, not the absence of an effect, that has to be kept clear of."""
    if spread.low >= bound:
        return _Judged(HELD, "The whole interval lies above what counts as held.", spread, bound)
    if spread.figure >= bound:
        return _Judged(IN_PART, "The figure reaches what counts as held, but its interval goes below it.", spread, bound)
    if part is not None and spread.figure >= part:
        return _Judged(IN_PART, "The figure reaches what counts in part.", spread, bound)
    return _Judged(NOT_HELD, "The figure is below what counts.", spread, bound)


def _level(claim: Claim, by: Level, ours: Mapping[str, Mapping[int, float]]) -> _Judged:
    arrays = {case: np.array(list(repeats.values())) for case, repeats in ours.items()}
    flip = -1.0 if by.at_most is not None else 1.0
    spread = interval([flip * values for values in arrays.values()], log=False, aggregate=claim.aggregate)
    published = flip * (by.at_most if by.at_most is not None else by.at_least or 0.0)
    bound = published
    if claim.honest is not None:
        edge = claim.honest[1] if by.at_most is not None else claim.honest[0]
        bound = flip * edge if edge is not None else published
    level, reach = number(flip * bound), number(flip * spread.low)
    if spread.low >= bound:
        state, rule = HELD, f"The whole interval meets the level of {level}."
    elif spread.figure >= bound:
        state, rule = IN_PART, f"The figure meets the level of {level}, but its interval reaches {reach}."
    elif claim.part is not None and spread.figure >= flip * claim.part:
        state, rule = IN_PART, f"The figure misses the level of {level} and meets {number(claim.part)}, which counts in part."
    else:
        state, rule = NOT_HELD, f"The figure misses the level of {level}."
    if flip < 0:
        spread = replace(spread, figure=-spread.figure, low=-spread.high, high=-spread.low)
    return _Judged(state, rule, spread, -math.inf, {case: float(np.median(values)) for case, values in arrays.items()})


def _exponent(by: Exponent, ours: Mapping[str, Mapping[int, float]], variable: Mapping[str, float]) -> _Judged:
    points = {c: repeats for c, repeats in ours.items() if variable.get(c, 0) > 0 and min(repeats.values()) > 0}
    if len({variable[case] for case in points}) < 3:
        return _Judged(NOT_TRIED, f"A slope with an interval needs three values of {by.variable} or more.")
    x = np.log([variable[case] for case in points])
    spread = _slope_interval(x, np.array([np.median(np.log(list(repeats.values()))) for repeats in points.values()]))
    low = by.at_least if by.at_least is not None else -math.inf
    high = by.at_most if by.at_most is not None else math.inf
    if low <= spread.low and spread.high <= high:
        state, rule = HELD, "The whole interval of the exponent meets the bound."
    elif low <= spread.figure <= high:
        state, rule = IN_PART, "The exponent meets the bound, but its interval leaves it."
    else:
        state, rule = NOT_HELD, "The exponent misses the bound."
    return _Judged(state, rule, spread, -math.inf, {case: float(np.median(list(r.values()))) for case, r in points.items()})


def _slope_interval(x: np.ndarray, y: np.ndarray) -> Interval:
    """The least-squares slope of y over x, and Student's interval from the residuals with two degrees of freedom less than points."""
    from scipy import stats

    line = stats.linregress(x, y)
    reach = float(stats.t.ppf((1 + LEVEL) / 2, len(x) - 2) * line.stderr)
    return Interval(float(line.slope), float(line.slope) - reach, float(line.slope) + reach, len(x), 1)


def _wins(technique: str, claim: Claim, by: Wins, result: Result, cases: Sequence[str]) -> _Judged:
    won = result.winners(claim.metric, cases, ties=False)
    share = {case: float(technique in best) for case, best in won.items()}
    if not share:
        return _Judged(NOT_TRIED, "No case has values of every technique.")
    spread = _share_interval(sum(share.values()), len(share))
    bound = claim.honest[0] if claim.honest is not None and claim.honest[0] is not None else by.share
    count = f"It alone is the best on {int(sum(share.values()))} of {len(share)} cases"
    if spread.figure >= bound:
        state, rule = HELD, f"{count}, which is enough."
    elif claim.part is not None and spread.figure >= claim.part:
        state, rule = IN_PART, f"{count}, as many as count in part."
    else:
        state, rule = NOT_HELD, f"{count}, which is too few."
    return _Judged(state, rule, spread, -math.inf, share)


def _share_interval(successes: float, n: int) -> Interval:
    """A share with Wilson's interval, which stays within 0 and 1."""
    share, z = successes / n, 1.959963984540054
    middle, reach = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return Interval(share, max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale), n, 1)


def _together(judged: Mapping[Kind, _Judged], claim: Claim, metric: Metric) -> _Judged:
    """One state from several kinds of case; the figure is that of the worst kind."""
    every = list(judged.values())
    if len(every) == 1:
        return every[0]
    if any(j.interval is None for j in every):
        return next(j for j in every if j.interval is None)
    lower_is_better = isinstance(claim.by, Level) and claim.by.at_most is not None
    worst_kind, worst = min(judged.items(), key=lambda item: (-1 if lower_is_better else 1) * item[1].interval.figure)  # type: ignore[union-attr]
    figures = ", ".join(f"{k} {number(_shown(claim, metric, j.interval)[1].figure)}" for k, j in judged.items() if j.interval)
    states = {j.state for j in every}
    if states == {HELD}:
        state, rule = HELD, "It is held on every kind of case"
    elif isinstance(claim.by, Level):
        order = (NOT_HELD, IN_PART, HELD)
        state, rule = min(states, key=order.index), f"The worst kind of case counts, which is {worst_kind}"
    elif (HELD in states or IN_PART in states) and not any(j.reversed for j in every):
        state, rule = IN_PART, "It is not held on every kind of case, and reversed on none"
    else:
        state, rule = NOT_HELD, f"It is {'reversed' if worst.reversed else 'not held'} on {worst_kind}"
    return replace(
        worst, state=state, rule=f"{rule} ({figures}).", by_case={case: gain for j in every for case, gain in j.by_case.items()},
        undefined=sum(j.undefined for j in every), beyond=any(j.beyond for j in every),
    )  # fmt: skip


def _enough(judged: _Judged, spread: Interval) -> _Judged:
    """Few cases cannot hold a claim."""
    if judged.state != HELD or spread.cases >= ENOUGH_CASES:
        return judged
    count = "There is only one case" if spread.cases == 1 else f"There are only {spread.cases} cases"
    return replace(judged, state=IN_PART, rule=f"{count}, and nothing is held with fewer than {ENOUGH_CASES}.")


def _quiet(judged: _Judged, technique: str, claim: Claim, result: Result) -> _Judged:
    """What was measured mostly on a disturbed machine, or in rounds far apart, cannot hold a claim."""
    cases = {case for kind in claim.kinds for case in result.cases_of(kind)}
    repeats = [(case, repeat) for case, row in result.values(technique, claim.metric, sorted(cases)).items() for repeat in row]
    noisy = sum(repeat in result.noisy(technique, claim.metric, case) for case, repeat in repeats)
    if judged.state == HELD and 2 * noisy > len(repeats):
        return replace(judged, state=IN_PART, rule="Most units ran on a disturbed machine.")
    return judged


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
    # An exponent has no unit, whatever its metric has.
    return f" {metric.unit}" if metric.unit and not isinstance(claim.by, Exponent) else "", spread


def _published(claim: Claim) -> str:
    over = f" than {' or '.join(claim.baselines)}" if claim.baselines else ""
    by = f"up to {str(claim.by).removeprefix('≥ ')}" if claim.aggregate == "max" else str(claim.by)
    if claim.aggregate == "arithmetic":
        over += " (arithmetic mean)"
    better = " better" if over and not by.endswith("better") and not isinstance(claim.by, Parity) else ""
    return f"{by}{better}{over.replace(' than', ' of') if isinstance(claim.by, Parity) else over}"


def _counts(claim: Claim) -> str:
    """From which figure the claim counts as held, and why, where that is not the published figure."""
    if claim.honest is None and claim.part is None:
        return ""
    unit = " %" if isinstance(claim.by, Gain) and claim.by.percent else "×" if isinstance(claim.by, Gain) and claim.by.ratio else ""
    low, high = claim.honest or (None, None)
    at_most = isinstance(claim.by, Level) and claim.by.at_most is not None
    said = []
    if at_most and high is not None:
        said.append(f"held up to {high:g}{unit}")
    elif low is not None:
        said.append(f"held from {low:g}{unit}" + ("" if high is None or isinstance(claim.by, Level) else f" to {high:g}{unit}"))
    if claim.part is not None:
        said.append(f"in part {'up to' if at_most else 'from'} {claim.part:g}{unit}")
    return f"Counts as {' and '.join(said)}: {claim.why}"

