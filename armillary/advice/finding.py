"""Weighs an arena's values against what people do today: who gains, how surely, on how much of the work, and at what cost.

A technique is weighed only if it answers every case that today's technique answers: one that shines on cases that it chose for itself is
named with the number that it takes, and is never ranked. The best of K techniques looks better than it is, so its interval is wider: at
level 1 − 0.05/K, the correction of Bonferroni. A gain is sure when that interval, over at least four cases, lies above no gain.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from armillary.arena import Arena, Metric
from armillary.records import Record
from armillary.study.gains import Gains, Interval, gains
from armillary.study.result import TIE_RATIO, Result
from armillary.study.verdicts import ENOUGH_CASES

RISK = 0.05
#: Shares of a gain within which another technique is as good, and beyond which a loss in another metric is told.
AS_GOOD, A_LOSS = 0.99, 0.95

#: Technique to metric to case to repeat to value.
Values = Mapping[str, Mapping[str, Mapping[str, Mapping[int, float]]]]


@dataclass(frozen=True)
class Table:
    """An arena's values, run now or recorded, by technique, metric, case and repeat."""

    arena: Arena
    values: Values
    #: (technique, metric) to how its values came to be.
    kinds: Mapping[tuple[str, str], frozenset[str]]
    cases: Sequence[str]

    @classmethod
    def of_result(cls, result: Result) -> Table:
        """The values of a study."""
        names = [t for t in result.techniques if not result.arena.technique(t).oracle]
        values = {t: {m: result.values(t, m) for m in result.metrics} for t in names}
        kinds = {(t, m): frozenset(result.kinds(t, m)) for t in names for m in result.metrics}
        return cls(result.arena, values, kinds, list(result.cases))

    @classmethod
    def of_record(cls, arena: Arena, record: Record) -> Table:
        """The medians of a recorded study; a metric counts as of one kind."""
        names = [t for t, facts in record.techniques.items() if t in arena.techniques and not facts.get("oracle")]
        values = {
            t: {m: {c: {0: float(v)} for c, v in by_case.items()} for m, by_case in record.techniques[t]["medians"].items()} for t in names
        }
        kinds = {(t, m): frozenset(record.metrics[m]["kinds"]) for t in names for m in values[t]}
        cases = list(dict.fromkeys(c for by_metric in values.values() for by_case in by_metric.values() for c in by_case))
        return cls(arena, values, kinds, cases)

    def without(self, techniques: Collection[str]) -> Table:
        """The same table without some techniques."""
        return replace(self, values={name: values for name, values in self.values.items() if name not in techniques})

    def on(self, technique: str, metric: str, cases: Sequence[str]) -> dict[str, Mapping[int, float]]:
        """Case to repeat to finite value."""
        found = self.values.get(technique, {}).get(metric, {})
        return {c: found[c] for c in cases if found.get(c) and all(math.isfinite(v) for v in found[c].values())}

    def gain(self, technique: str, today: str, metric: str, cases: Sequence[str]) -> Gains | None:
        """Paired gains; None where nothing can be compared."""
        facts = self.arena.metrics[metric]
        if facts.better is None or self.kinds.get((technique, metric)) != self.kinds.get((today, metric)):
            return None
        found = gains(self.on(technique, metric, cases), self.on(today, metric, cases), facts.better, facts.scale)
        return found if found.by_case else None


@dataclass(frozen=True)
class Finding:
    """What the best technique of an arena changes, in one metric, over what people do today."""

    arena: str
    question: str
    technique: str
    today: str
    metric: str
    #: How the values came to be: measured, simulated or modelled.
    kind: str
    #: Whether `gain` is a ratio (1 changes nothing) or a difference (0 changes nothing).
    ratio: bool
    gain: float
    low: float
    high: float
    cases: int
    #: On how many of the cases it is worse than today's technique.
    worse_on: int
    rivals: int
    sure: bool
    #: Techniques that gain as much, within a hundredth.
    as_good: tuple[str, ...]
    #: Techniques that do not answer every case, with how many they answer; they are not weighed.
    partial: Mapping[str, int]
    #: Further metrics in which it is worse than today's, in words.
    costs: tuple[str, ...]

    @property
    def helps(self) -> bool:
        """Whether it is better than today's technique, by more than a tie."""
        return self.gain > (TIE_RATIO if self.ratio else 0.0)

    def json(self) -> dict[str, Any]:
        """As plain data; what is no finite number becomes None."""
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}


def findings(table: Table, today: str) -> list[Finding]:
    """One finding for each metric that leads on some of the cases; the first metric of a case that today's technique answers leads.

    A ratio to zero says nothing, so a metric in which today's technique has zero does not lead where gains are ratios.
    """
    led: dict[str, list[str]] = {}
    for case in table.cases:
        metric = next((m for m, facts in table.arena.metrics.items() if facts.better and _tells(table, today, m, case)), None)
        if metric is not None:
            led.setdefault(metric, []).append(case)
    return [found for metric, cases in led.items() if (found := _finding(table, today, metric, cases)) is not None]


def _tells(table: Table, today: str, metric: str, case: str) -> bool:
    found = table.on(today, metric, [case])
    return bool(found) and (table.arena.metrics[metric].scale != "ratio" or all(found[case].values()))


def _finding(table: Table, today: str, metric: str, cases: Sequence[str]) -> Finding | None:
    facts = table.arena.metrics[metric]
    whole: dict[str, Gains] = {}
    partial: dict[str, int] = {}
    for name in table.values:
        if name == today:
            continue
        found = table.gain(name, today, metric, cases)
        if found is None:
            continue
        if len(found.by_case) == len(cases):
            whole[name] = found
        else:
            partial[name] = len(found.by_case)
    if not whole:
        return None
    spreads = {name: _interval(found, 1 - RISK / len(whole)) for name, found in whole.items()}
    neutral = 1.0 if facts.scale == "ratio" else 0.0
    enough = len(cases) >= ENOUGH_CASES
    best = max(spreads, key=lambda name: (spreads[name].low if enough else spreads[name].figure, spreads[name].figure))
    spread = spreads[best]
    as_good = tuple(n for n, s in spreads.items() if n != best and s.figure >= _share(spread.figure, neutral, AS_GOOD, facts))
    worse = sum(value < neutral for value in whole[best].medians().values())
    kinds = "/".join(sorted(table.kinds[best, metric]))
    return Finding(
        table.arena.path, table.arena.question, best, today, metric, kinds, facts.scale == "ratio", spread.figure, spread.low, spread.high,
        len(cases), worse, len(whole), enough and spread.low > neutral, as_good, partial, _costs(table, best, today, metric, cases),
    )  # fmt: skip


def _interval(found: Gains, level: float) -> Interval:
    spread = found.interval(level=level)
    assert spread is not None  # There is at least one case.
    return spread


def _share(gain: float, neutral: float, share: float, facts: Metric) -> float:
    """The gain from which another technique counts as good: a share of a ratio, or of a difference's distance from none."""
    return gain * share if facts.scale == "ratio" else neutral + (gain - neutral) * share


def _costs(table: Table, name: str, today: str, leading: str, cases: Sequence[str]) -> tuple[str, ...]:
    """Where the technique is worse than today's by a twentieth or, on a difference's scale, at all beyond its interval."""
    said = []
    for metric, facts in table.arena.metrics.items():
        found = None if metric == leading else table.gain(name, today, metric, cases)
        spread = None if found is None else found.interval()
        if spread is None:
            continue
        unit = f" {facts.unit}" if facts.unit else ""
        if facts.scale == "ratio" and spread.figure < A_LOSS:
            said.append(f"{metric} is {1 / spread.figure:.3g} times worse")
        elif facts.scale == "difference" and spread.figure < 0 and (spread.high < 0 or spread.cases < ENOUGH_CASES):
            said.append(f"{metric} is worse by {-spread.figure:.3g}{unit}")
    return tuple(said)
