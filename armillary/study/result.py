"""What came out of a study: a table, an answer and verdicts, which can be written as CSV, Parquet, JSON and HTML."""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary import catalogue
from armillary.arena import Arena, Metric
from armillary.claim import Kind, percent_of_ratio
from armillary.errors import InputError, unknown, without_paths
from armillary.result import Lines, Place
from armillary.study.gains import Gains, Interval, gains, level
from armillary.study.store import Store
from armillary.study.unit import code_digest
from armillary.study.verdicts import ENOUGH_CASES, Verdict, judge
from armillary.wording import counted, listed

if TYPE_CHECKING:
    import polars as pl

SCHEMA = 1
TIE_RATIO, TIE_DIFFERENCE = 1.01, 0.001
UNIT_COLUMNS = ("key", "id", "arena", "technique", "parameters", "case", "repeat", "state", "attempt", "noisy", "seconds", "worker",
                "reason", "error", "traceback", "code", "environment", "slowdown")  # fmt: skip


@dataclass(frozen=True)
class Left:
    """An artifact that a unit left in the store; `size` in bytes."""

    technique: str
    case: str
    repeat: int
    name: str
    media: str
    size: int
    unit: str


class Result:
    """The units of one study with their values. `Result.load` reads it from a store."""

    def __init__(
        self,
        *,
        study: int,
        created: float,
        command: str,
        plan: Mapping[str, Any],
        units: Sequence[Mapping[str, Any]],
        values: Mapping[int, Mapping[str, tuple[str, float]]],
        environments: Mapping[int, Mapping[str, Any]],
        store: Path | None = None,
    ) -> None:
        self.study = study
        self.created = created
        self.command = command
        self.plan = plan
        #: One mapping per unit; keys as in UNIT_COLUMNS, and `stale`.
        self.units = units
        self.environments = environments
        #: Technique to its parameters, in the order of the plan.
        self.techniques: dict[str, dict[str, Any]] = dict(plan["techniques"])
        #: Case to its kinds, parameters and digest.
        self.cases: dict[str, dict[str, Any]] = dict(plan["cases"])
        self.metrics: tuple[str, ...] = tuple(plan["metrics"])
        self._values = values
        self._store = store

    @classmethod
    def load(cls, store: Path | str, study: int | None = None) -> Result:
        """The result of a study in a store; the newest one when none is named."""
        with Store.read(Path(store)) as opened:
            rows = {row[0]: row for row in opened.studies()}
            if not rows:
                raise InputError("holds no study", where=str(store))
            number = next(iter(rows)) if study is None else study
            if number not in rows:
                raise unknown("study", str(number), map(str, rows), where=str(store))
            _, created, _, command, text = rows[number]
            unit_rows, value_rows = opened.results(number)
            environments = opened.environments()
        plan = json.loads(text)
        arena = catalogue.arena(plan["recipe"]["arena"])
        units = []
        for row in unit_rows:
            unit = dict(zip(UNIT_COLUMNS, row, strict=True))
            known = unit["technique"] in arena.techniques
            units.append({**unit, "stale": not known or unit["code"] != code_digest(arena, unit["technique"])[:32]})
        values: dict[int, dict[str, tuple[str, float]]] = {}
        for key, metric, kind, value in value_rows:
            values.setdefault(key, {})[metric] = (kind, value)
        return cls(
            study=number, created=created, command=command, plan=plan, units=units, values=values, environments=environments,
            store=Path(store),
        )  # fmt: skip

    @property
    def arena(self) -> Arena:
        """The arena that was studied."""
        return catalogue.arena(self.plan["recipe"]["arena"])

    @property
    def seed(self) -> int:
        """The study's seed."""
        return int(self.plan["seed"])

    @property
    def failed(self) -> list[Mapping[str, Any]]:
        """The units that failed."""
        return [unit for unit in self.units if unit["state"] == "failed"]

    @property
    def declined(self) -> list[Mapping[str, Any]]:
        """The units that their technique declined."""
        return [unit for unit in self.units if unit["state"] == "declined"]

    @functools.cached_property
    def artifacts(self) -> list[Left]:
        """What the units left beside their metrics, in the order of the plan; `artifact` has the bytes."""
        if self._store is None:
            return []
        units = {unit["key"]: unit for unit in self.units}
        with Store.read(self._store) as opened:
            rows = opened.left(self.study)
        found = [
            Left(u["technique"], u["case"], u["repeat"], name, media, size, u["id"])
            for key, name, media, size in rows
            if (u := units.get(key)) is not None
        ]
        cases, techniques = list(self.cases), list(self.techniques)
        return sorted(found, key=lambda one: (cases.index(one.case), techniques.index(one.technique), one.repeat, one.name))

    def artifact(self, left: Left) -> bytes:
        """The bytes of an artifact."""
        assert self._store is not None
        with Store.read(self._store) as opened:
            return next(found.data for found in opened.artifacts(left.unit) if found.name == left.name)

    def artifact_rows(self, technique: str, case: str, name: str) -> list[dict[str, Any]]:
        """The rows of the table artifact `name` that a technique left on a case; empty where it left none."""
        import polars as pl

        for left in self.artifacts:
            if (left.technique, left.case, left.name) == (technique, case, f"{name}.csv"):
                return pl.read_csv(self.artifact(left)).to_dicts()
        return []

    def metric(self, name: str) -> Metric:
        """A metric of the arena, by name."""
        if name not in self.arena.metrics:
            raise unknown("metric", name, self.arena.metrics, where=self.arena.path)
        return self.arena.metrics[name]

    @functools.cached_property
    def _index(self) -> dict[tuple[str, str], dict[str, dict[int, tuple[str, float, bool]]]]:
        """(technique, metric) to case to repeat to (kind, value, noisy)."""
        index: dict[tuple[str, str], dict[str, dict[int, tuple[str, float, bool]]]] = {}
        for unit in self.units:
            for metric, (kind, value) in self._values.get(unit["key"], {}).items():
                cell = index.setdefault((unit["technique"], metric), {}).setdefault(unit["case"], {})
                cell[unit["repeat"]] = (kind, value, bool(unit["noisy"]))
        return index

    def values(self, technique: str, metric: str, cases: Sequence[str] | None = None) -> dict[str, dict[int, float]]:
        """Case to repeat to value, for the units that are done; cases in the order of the plan."""
        found = self._index.get((technique, metric), {})
        return {c: {r: v[1] for r, v in found[c].items()} for c in (self.cases if cases is None else cases) if c in found}

    def noisy(self, technique: str, metric: str, case: str) -> set[int]:
        """The repeats that were measured on a disturbed machine. Simulated, modelled and steady values are not affected by that."""
        if self.metric(metric).steady:
            return set()
        clocked = self.metric(metric).clocked
        found = self._index.get((technique, metric), {}).get(case, {})
        return {repeat for repeat, (kind, _, noisy) in found.items() if noisy and (clocked or kind == "measured")}

    def kinds(self, technique: str, metric: str, cases: Collection[str] | None = None) -> set[str]:
        """How the values (of these cases) came to be: measured, simulated, modelled."""
        found = self._index.get((technique, metric), {})
        return {v[0] for case, repeats in found.items() if cases is None or case in cases for v in repeats.values()}

    def cases_of(self, kind: Kind) -> list[str]:
        """The cases of a kind."""
        return [name for name, case in self.cases.items() if kind.takes(case["kinds"])]

    def case_parameter(self, name: str) -> dict[str, float]:
        """Case to the value of a numeric parameter, for the cases that have it."""
        found = {case: facts["parameters"].get(name) for case, facts in self.cases.items()}
        return {c: float(v) for c, v in found.items() if isinstance(v, int | float) and not isinstance(v, bool)}

    def gains(self, technique: str, over: str, metric: str, cases: Sequence[str] | None = None) -> Gains | None:
        """The paired gains of one technique over another; None when the metric has no better or the kinds differ."""
        facts = self.metric(metric)
        if facts.better is None or self.kinds(technique, metric) != self.kinds(over, metric):
            return None
        ours, theirs = self.values(technique, metric, cases), self.values(over, metric, cases)
        return gains(ours, theirs, facts.better, facts.scale)

    def medians(self, technique: str, metric: str) -> dict[str, float]:
        """Case to the median over repeats."""
        return {case: float(np.median(list(repeats.values()))) for case, repeats in self.values(technique, metric).items()}

    def winners(self, metric: str, cases: Sequence[str] | None = None, *, ties: bool = True) -> dict[str, set[str]]:
        """Case to the techniques that none beats by more than the tie tolerance, or at all without `ties`; oracles do not compete."""
        facts = self.metric(metric)
        if facts.better is None:
            return {}
        oracles = [name for name in self.techniques if self.arena.technique(name).oracle]
        won: dict[str, set[str]] = {}
        for case in self.cases if cases is None else cases:
            row = self.on(case, metric, without=oracles)
            if row:
                best = next(iter(row.values()))
                won[case] = {name for name, value in row.items() if value == best or (ties and _ties(value, best, facts))}
        return won

    @functools.cached_property
    def _comparable(self) -> dict[tuple[str, str], str]:
        """(case, metric) to the kind of value that most techniques have there: values of other kinds are not compared with it."""
        found: dict[tuple[str, str], Counter[str]] = {}
        for (_, metric), by_case in self._index.items():
            for case, repeats in by_case.items():
                found.setdefault((case, metric), Counter())[next(iter(repeats.values()))[0]] += 1
        return {place: max(sorted(kinds), key=kinds.__getitem__) for place, kinds in found.items()}

    def on(self, case: str, metric: str, *, without: Collection[str] = ()) -> dict[str, float]:
        """Technique to its median on one case, the best first; without those that have no value there or are named in `without`.

        Where techniques have values of different kinds (measured, simulated, modelled), those of the most common kind are given.
        """
        sign = {"lower": 1.0, "higher": -1.0, None: 0.0}[self.metric(metric).better]
        kind = self._comparable.get((case, metric), "")
        names = [t for t in self.techniques if t not in without and kind in self.kinds(t, metric, (case,))]
        found = {t: medians[case] for t in names if case in (medians := self.medians(t, metric))}
        return dict(sorted(found.items(), key=lambda item: sign * item[1]))

    def best(self, case: str, metric: str, *, without: Collection[str] = ()) -> str | None:
        """The technique with the best value on a case, or None."""
        return next(iter(self.on(case, metric, without=without)), None)

    def second(self, case: str, metric: str, *, without: Collection[str] = ()) -> str | None:
        """The technique with the second-best value on a case, or None."""
        return next(iter(list(self.on(case, metric, without=without))[1:]), None)

    def ratio(self, case: str, metric: str, technique: str, over: str) -> float | None:
        """How many times better `technique` is than `over` on a case: above 1 is better. None where one has no positive value."""
        found = self.on(case, metric)
        own, other = found.get(technique, 0.0), found.get(over, 0.0)
        if not (own > 0 and other > 0):
            return None
        return other / own if self.metric(metric).better == "lower" else own / other

    def first_places(self, metric: str) -> dict[str, int]:
        """Technique to the number of cases on which it is the best, most first; those that are never the best are left out."""
        first = [best for case in self.cases if (best := self.best(case, metric))]
        return dict(sorted(Counter(first).items(), key=lambda item: (-item[1], item[0])))

    def lines(self, metric: str, place: Place | None = None, *, techniques: Iterable[str] | None = None) -> Lines:
        """Values as lines over a parameter. Without `place`: one panel, the cases' names on the x axis."""
        found: Lines = {}
        for technique in self.techniques if techniques is None else techniques:
            for case, value in self.medians(technique, metric).items():
                where = ("", case) if place is None else place(case, self.cases[case])
                if where is not None and math.isfinite(value):
                    found.setdefault(where[0], {}).setdefault(technique, []).append((where[1], value))
        for panel in found.values():
            for points in panel.values():
                if all(isinstance(x, int | float) for x, _ in points):
                    points.sort()
        return found

    def panels(
        self, title: str, metric: str, place: Place | None = None, *, x: str = "", y: str = "", log_x: bool = False, log_y: bool = False,
        least_points: int = 1, columns: int = 3,
    ) -> list[Any]:  # fmt: skip
        """`lines` as one figure in a list, or an empty list where no line has `least_points` points."""
        from armillary.figures import panels

        found = self.lines(metric, place) if metric in self.metrics else {}
        if not any(len(points) >= least_points for panel in found.values() for points in panel.values()):
            return []
        bold = self.telling_techniques(metric)
        return [panels(found, title, x, y or self.metric(metric).unit, log_x=log_x, log_y=log_y, columns=columns, bold=bold)]

    def telling_techniques(self, metric: str, most: int = 8) -> list[str]:
        """The techniques to show where there is room for `most`: published systems, the baseline and oracles, then the best."""
        arena = self.arena
        known = [name for name in self.techniques if name in arena.papers or name == self.baseline or arena.technique(name).oracle]
        ranked = [name for name, _ in self.ranking(metric)] if self.metric(metric).better else list(self.techniques)
        return list(dict.fromkeys([*known, *ranked]))[:most]

    @property
    def baseline(self) -> str:
        """What gains are shown against: the arena's baseline if it ran, else the first technique."""
        wanted = self.arena.baseline
        return wanted if wanted in self.techniques else next(iter(self.techniques))

    def table(self) -> pl.DataFrame:
        """Every value of the metrics that were asked for as a long Polars table: unit columns, metric, kind, value."""
        import polars as pl

        columns = ("id", "arena", "technique", "parameters", "case", "repeat", "state", "noisy", "stale", "seconds")
        rows = []
        for unit in self.units:
            facts = [unit[c] if c not in ("noisy", "stale") else bool(unit[c]) for c in columns]
            found = {m: v for m, v in self._values.get(unit["key"], {}).items() if m in self.metrics}
            rows += [(*facts, metric, kind, value) for metric, (kind, value) in found.items()] or [(*facts, None, None, None)]
        types = {"id": pl.String, "arena": pl.String, "technique": pl.String, "parameters": pl.String, "case": pl.String,
                 "repeat": pl.Int64, "state": pl.String, "noisy": pl.Boolean, "stale": pl.Boolean, "seconds": pl.Float64,
                 "metric": pl.String, "kind": pl.String, "value": pl.Float64}  # fmt: skip
        return pl.DataFrame(rows, schema=types, orient="row")

    def summary(self, metrics: Sequence[str] | None = None) -> pl.DataFrame:
        """Technique × metric: median over cases, gain over the baseline with its interval, wins, cases, kind."""
        import polars as pl

        rows: list[dict[str, Any]] = []
        for metric in metrics or self.metrics:
            won = self.winners(metric)
            for technique in self.techniques:
                medians = self.medians(technique, metric)
                if not medians:
                    continue
                spread = self._gain_interval(technique, metric)
                rows.append({
                    "technique": technique, "metric": metric, "unit": self.metric(metric).unit,
                    "kind": ", ".join(sorted(self.kinds(technique, metric))), "median": float(np.median(list(medians.values()))),
                    "gain": spread and spread.figure, "low": spread and spread.low, "high": spread and spread.high,
                    "over": self.baseline if spread else None, "wins": sum(technique in best for best in won.values()),
                    "cases": len(medians),
                })  # fmt: skip
        types = {"technique": pl.String, "metric": pl.String, "unit": pl.String, "kind": pl.String, "median": pl.Float64,
                 "gain": pl.Float64, "low": pl.Float64, "high": pl.Float64, "over": pl.String, "wins": pl.Int64,
                 "cases": pl.Int64}  # fmt: skip
        return pl.DataFrame(rows, schema=types)

    def interval(self, technique: str, metric: str) -> Interval | None:
        """The technique's own level on a metric over cases, with its interval: geometric mean on a ratio scale."""
        arrays = [np.array(list(repeats.values())) for repeats in self.values(technique, metric).values()]
        return level(arrays, self.metric(metric).scale) if arrays else None

    def _gain_interval(self, technique: str, metric: str) -> Interval | None:
        if technique == self.baseline:
            return None
        found = self.gains(technique, self.baseline, metric)
        return found.interval() if found else None

    @functools.cached_property
    def verdicts(self) -> list[Verdict]:
        """Every claim of the techniques that ran, judged."""
        wanted = self.plan.get("judged") or self.techniques
        return self._judged(wanted)

    def _judged(self, techniques: Iterable[str], *, whole: bool = False) -> list[Verdict]:
        return [judge(number, name, claim, self, whole=whole) for number, name, claim in self.arena.claims(techniques)]

    def ranking(self, metric: str) -> list[tuple[str, int]]:
        """(technique, wins) of the techniques that compete, best first.

        The order is that of the mean distance from the best of each case, in logarithms on a ratio scale; techniques that took fewer
        than half as many cases as the most willing one come last.
        """
        facts, won = self.metric(metric), self.winners(metric)
        distances: dict[str, list[float]] = {}
        for case, best in won.items():
            row = self.on(case, metric)
            top = row[next(name for name in row if name in best)]
            for name, value in row.items():
                if not self.arena.technique(name).oracle:
                    distances.setdefault(name, []).append(_distance(value, top, facts))
        most = max(map(len, distances.values()), default=0)
        wins = {name: sum(name in best for best in won.values()) for name in distances}
        order = sorted(distances, key=lambda name: (2 * len(distances[name]) < most, float(np.mean(distances[name])), -wins[name], name))
        return [(name, wins[name]) for name in order]

    def answer(self, metric: str | None = None) -> str:
        """The study's answer in one or two sentences."""
        if metric is None and self.arena._answer is not None:
            return self.arena._answer(self)
        metric = metric or next((m for m in self.metrics if self.metric(m).better), None)
        if metric is None:
            return "None of the chosen metrics has a better and a worse, so there is nothing to rank."
        order = self.ranking(metric)
        if not order:
            return "Nothing was run to the end."
        best, wins = order[0]
        kind = ", ".join(sorted(self.kinds(best, metric)))
        cases = len(self.winners(metric))
        many = f"on {wins} of {cases} cases" if cases != 1 else "on the only case"
        if len(order) == 1:
            return f"{best} ran alone on {counted(cases, 'case')}, so it is compared with nothing."
        leads = {rival: self._lead(best, rival, metric) for rival, _ in order[1:]}
        unclear = [rival for rival, lead in leads.items() if not lead.clear]
        if unclear:
            said = f"There is no clear winner in {metric} among {listed([best, *unclear])}"
            return f"{said}; {best} is the best or ties {many} ({kind})." if wins else f"{said} ({kind})."
        lead, word = leads[order[1][0]], "lowest" if self.metric(metric).better == "lower" else "highest"
        ties = "is best or ties" if cases > 1 else "is best"
        return f"{best} has the {word} {metric}, {lead.in_words} than {order[1][0]}, and {ties} {many} ({kind})."

    def _lead(self, best: str, rival: str, metric: str) -> _Lead:
        """How `best` stands against `rival` over the cases on which their values are of one kind."""
        common = [case for case in self.cases if {best, rival} <= self.on(case, metric).keys()]
        facts = self.metric(metric)
        ours, theirs = self.values(best, metric, common), self.values(rival, metric, common)
        found = gains(ours, theirs, facts.better or "higher", facts.scale)
        spread = found.interval()
        if spread is None:
            # A ratio with zero says nothing; the difference still tells which is better.
            apart = gains(ours, theirs, facts.better or "higher", "difference").medians()
            word = "lower" if facts.better == "lower" else "higher"
            return _Lead(bool(apart) and all(gain > 0 for gain in apart.values()), word)
        if len(found.by_case) >= ENOUGH_CASES:
            return _Lead(spread.low > (1.0 if found.ratio else 0.0), _gain_in_words(spread, facts))
        # Too few cases for an interval over them: it has to be better on each by more than a tie.
        tie = TIE_RATIO if found.ratio else TIE_DIFFERENCE
        return _Lead(all(gain > tie for gain in found.medians().values()), _gain_in_words(spread, facts, interval=False))

    def explain(self, case: str) -> str:
        """What each verdict would be without one case."""
        if case not in self.cases:
            raise unknown("case", case, self.cases)
        without = Result(
            study=self.study, created=self.created, command=self.command, units=[u for u in self.units if u["case"] != case],
            plan={**self.plan, "cases": {c: f for c, f in self.cases.items() if c != case}}, values=self._values,
            environments=self.environments,
        )  # fmt: skip
        lines = []
        wanted = self.plan.get("judged") or list(self.techniques)
        for now, then in zip(self.verdicts, without._judged(wanted, whole=True), strict=True):
            if not now.whole:
                continue
            change = f"becomes {then.state} ({then.ours})" if then.state != now.state else f"stays {now.state} ({then.ours})"
            lines.append(f"{now.claim}: {now.state} ({now.ours}); without {case} it {change}")
        return "\n".join(lines) or "no claim was judged"

    def influence(self) -> list[str]:
        """Cases whose removal would change a verdict, one line each."""
        lines = []
        if len(self.cases) > 1:
            for case in self.cases:
                lines += [line for line in self.explain(case).splitlines() if " it becomes " in line]
        return lines

    def json(self) -> dict[str, Any]:
        """The result as plain data; `schema` counts up when its shape changes."""
        return {
            "schema": SCHEMA, "arena": self.arena.path, "question": self.arena.question, "answer": self.answer(),
            "study": self.study, "seed": self.seed, "created": self.created, "plan": self._plan_without_paths(),
            "summary": self.summary().to_dicts(),
            "verdicts": [verdict.json() for verdict in self.verdicts],
            "failed": [
                {**{k: u[k] for k in ("technique", "case", "repeat")}, "error": without_paths(u["error"] or "")} for u in self.failed
            ],
            "declined": [{k: u[k] for k in ("technique", "case", "repeat", "reason")} for u in self.declined],
            "values": self.table().to_dicts(),
        }  # fmt: skip

    def _plan_without_paths(self) -> dict[str, Any]:
        """The plan, whose user's files go by their names alone."""
        recipe = dict(self.plan["recipe"])
        recipe["work"] = [Path(file).name for file in recipe.get("work", ())]
        recipe["options"] = [[name, without_paths(str(value))] for name, value in recipe.get("options", ())]
        return {**self.plan, "recipe": recipe}

    def write(self, path: Path | str) -> Path:
        """Writes the result as its ending says: .csv, .parquet, .json or .html."""
        target = Path(path)
        writers = {".csv": self._write_csv, ".parquet": self._write_parquet, ".json": self._write_json, ".html": self._write_html}
        if target.suffix not in writers:
            raise InputError(f"expected a name that ends in {', '.join(writers)}", where=str(target))
        try:
            writers[target.suffix](target)
        except OSError as error:
            raise InputError(error.strerror or str(error), where=str(target)) from None
        return target

    def html(self, path: Path | str) -> Path:
        """Writes the self-contained HTML report."""
        return self.write(Path(path).with_suffix(".html"))

    def plot(self, metric: str | None = None) -> Any:
        """A Plotly figure of one metric: techniques with their intervals, one faint dot per case."""
        from armillary.study.report import plots

        return plots.dots(self, metric or self.metrics[0])

    def csv(self) -> str:
        """Every value as CSV. Texts that a spreadsheet would take for a formula begin with an apostrophe."""
        import polars as pl

        texts = pl.col(pl.String)
        formula = texts.str.contains(r"^[=+\-@\t\r]")
        return self.table().with_columns(pl.when(formula).then("'" + texts).otherwise(texts).name.keep()).write_csv()

    def _write_csv(self, path: Path) -> None:
        path.write_text(self.csv(), encoding="utf-8")

    def _write_parquet(self, path: Path) -> None:
        self.table().write_parquet(path)

    def _write_json(self, path: Path) -> None:
        path.write_text(json.dumps(self.json(), indent=1))

    def _write_html(self, path: Path) -> None:
        from armillary.study.report import page

        path.write_text(page.render(self), encoding="utf-8")

    def __repr__(self) -> str:
        return f"<Result of {self.arena.path}: {self.answer()}>"


def _ties(value: float, best: float, metric: Metric) -> bool:
    if metric.scale == "difference":
        return abs(value - best) <= TIE_DIFFERENCE
    if value <= 0 or best <= 0:
        return False
    return (value / best if metric.better == "lower" else best / value) <= TIE_RATIO


def _distance(value: float, best: float, metric: Metric) -> float:
    """How far a value is from the best of its case: a difference, or a logarithm of at most 700 on a ratio scale."""
    if metric.scale == "difference" or value == best:
        return abs(value - best) if math.isfinite(value - best) else 0.0 if value == best else 700.0
    if not (value > 0 and best > 0 and math.isfinite(value) and math.isfinite(best)):
        return 700.0
    return abs(math.log(value / best))


@dataclass(frozen=True)
class _Lead:
    """Whether one technique is clearly better than another, and by how much, in words."""

    clear: bool
    in_words: str


def _gain_in_words(spread: Interval, metric: Metric, *, interval: bool = True) -> str:
    """`8.1 % lower (95 % interval 5.9 to 10.2)`."""
    word, unit = "lower" if metric.better == "lower" else "higher", " %"
    figures = [spread.figure, spread.low, spread.high]
    if metric.scale == "difference":
        word, unit = "better", f" {metric.unit}" if metric.unit else ""
    elif metric.better == "higher" and spread.figure >= 2:
        unit = "×"
    else:
        figures = [percent_of_ratio(figure, metric.better or "higher") for figure in figures]
    around = f" (95 % interval {figures[1]:.3g} to {figures[2]:.3g})" if interval else ""
    return f"{figures[0]:.3g}{unit} {word}{around}"
