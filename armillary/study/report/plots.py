"""The plots of a report, each made from a result."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.figures import DIVERGING, figure, looks, panels, rounded, wide_range

if TYPE_CHECKING:
    from armillary.study.result import Result

MOST_POINTS = 20_000
MOST_PANELS = 6


def dots(result: Result, metric: str) -> Any:
    """Techniques from best to worst: the level over cases with its interval, and one faint dot a case."""
    facts = result.metric(metric)
    styles, names = looks(result.techniques), _ordered(result, metric)
    labels = {name: label(result, name) for name in names}
    medians = {name: result.medians(name, metric) for name in names}
    log = facts.scale == "ratio" and wide_range(v for row in medians.values() for v in row.values())
    made = figure("All cases, and their mean with its 95 % interval", _axis(result, metric), "",
                  height=130 + 30 * len(names), log_x=log)  # fmt: skip
    if sum(map(len, medians.values())) <= MOST_POINTS:
        for name, row in medians.items():
            made.add_scatter(
                x=[rounded(v) for v in row.values()], y=[labels[name]] * len(row), mode="markers", hovertext=list(row),
                hoverinfo="x+text",
                marker={"color": styles[name].color, "size": 6, "opacity": 0.3}, showlegend=False,
            )  # fmt: skip
    else:
        for name, row in medians.items():
            made.add_box(x=np.quantile(list(row.values()), [0.05, 0.25, 0.5, 0.75, 0.95]).tolist(), y0=labels[name], name=name,
                         showlegend=False, line={"color": styles[name].color}, opacity=0.4)  # fmt: skip
    for name in names:
        spread = result.interval(name, metric)
        if spread:
            made.add_scatter(
                x=[rounded(spread.figure)], y=[labels[name]], mode="markers", showlegend=False,
                error_x={"type": "data", "array": [rounded(spread.high - spread.figure)], "thickness": 2, "width": 5,
                         "arrayminus": [rounded(spread.figure - spread.low)]},
                marker={"color": styles[name].color, "symbol": styles[name].symbol, "size": 11},
                hovertemplate=f"{name}: %{{x}} ({spread.low:.4g} to {spread.high:.4g})<extra></extra>",
            )  # fmt: skip
    made.update_yaxes(categoryorder="array", categoryarray=list(labels.values())[::-1])
    return made


def heat(result: Result, metric: str) -> Any | None:
    """Technique × case: the gain over the baseline; blue is better, orange worse, white equal."""
    facts, base = result.metric(metric), result.baseline
    names = [name for name in _ordered(result, metric) if name != base]
    rows = []
    for name in names:
        found = result.gains(name, base, metric)
        medians = found.medians() if found else {}
        rows.append([medians.get(case, math.nan) for case in result.cases])
    values = np.array(rows, float)
    if not values.size or np.isnan(values).all():
        return None
    shades = np.log2(values) if facts.scale == "ratio" else values
    limit = float(np.nanquantile(np.abs(shades), 0.98)) or 1.0
    ratio = facts.scale == "ratio"
    what = "gain" if ratio else "difference"
    made = figure(f"{metric}: {what} over {base}, by case (blue is better)", "", "", height=230 + 26 * len(names))
    texts = [[("" if math.isnan(v) else f"{v:.3g}") for v in row] for row in values]
    ticks = [-limit, -limit / 2, 0, limit / 2, limit]
    made.add_heatmap(
        z=[[None if math.isnan(v) else rounded(v, 4) for v in row] for row in shades], x=list(result.cases),
        y=[label(result, name) for name in names], zmid=0, zmin=-limit, zmax=limit, colorscale=[list(stop) for stop in DIVERGING],
        text=texts, hovertemplate="%{y} on %{x}: %{text}<extra></extra>", xgap=1,
        ygap=1, texttemplate="%{text}" if len(result.cases) <= 12 else None, textfont={"size": 9},
        colorbar={"tickvals": ticks, "ticktext": [f"{2**t if ratio else t:.2f}" for t in ticks], "thickness": 12},
    )  # fmt: skip
    made.update_yaxes(autorange="reversed")
    made.update_xaxes(tickangle=-45, type="category")
    return made


def lines(result: Result, metric: str, parameter: str) -> Any | None:
    """A metric over a numeric parameter of the cases, in one panel for each set of cases that differ in nothing else.

    Cases that differ in something else too are never averaged; where no three cases differ in this parameter alone there is no plot.
    """
    where = result.case_parameter(parameter)
    alike: dict[str, list[str]] = {}
    for case in where:
        facts = result.cases[case]
        rest = {name: value for name, value in facts["parameters"].items() if name != parameter}
        alike.setdefault(json.dumps([rest, facts["kinds"]], sort_keys=True, default=str), []).append(case)
    groups = [cases for cases in alike.values() if len(cases) == len({where[case] for case in cases}) >= 3]
    if not groups:
        return None
    panel_of = {case: _panel(result, cases, parameter, len(groups)) for cases in groups[:MOST_PANELS] for case in cases}
    found = result.lines(metric, lambda case, facts: (panel_of[case], where[case]) if case in panel_of else None)
    if not found:
        return None
    values = [y for panel in found.values() for points in panel.values() for _, y in points]
    ratio = result.metric(metric).scale == "ratio"
    cut = f" (the first {MOST_PANELS} of {len(groups)} series of cases)" if len(groups) > MOST_PANELS else ""
    return panels(
        found, f"{_described(result, metric)} over {parameter}{cut}", parameter, _axis(result, metric), log_x=wide_range(where.values()),
        log_y=ratio and wide_range(values), columns=2 if len(found) > 1 else 1, bold=result.telling_techniques(metric),
    )  # fmt: skip


def _panel(result: Result, cases: Sequence[str], parameter: str, groups: int) -> str:
    """A title for the cases of one panel: the other parameters in which the panels differ."""
    if groups == 1:
        return ""
    everywhere = [facts["parameters"] for facts in result.cases.values()]
    mine = result.cases[cases[0]]["parameters"]
    telling = [name for name in mine if name != parameter and len({str(other.get(name)) for other in everywhere}) > 1]
    return ", ".join(f"{name} {mine[name]}" for name in telling[:3]) or cases[0]


def repeats(result: Result, metric: str) -> Any | None:
    """Every measured repeat against the median of its technique and case; hollow where the machine was disturbed."""
    styles, names = looks(result.techniques), _ordered(result, metric)
    points: dict[str, list[tuple[float, str, bool]]] = {}
    for name in names:
        for case, row in result.values(name, metric).items():
            middle, noisy = float(np.median(list(row.values()))), result.noisy(name, metric, case)
            if len(row) > 1 and middle > 0:
                points.setdefault(name, []).extend((v / middle, f"{case}, repeat {r}", r in noisy) for r, v in row.items())
    if not points:
        return None
    made = figure(f"{metric}: every repeat, over the median of its technique and case (hollow: disturbed machine)", "value / median", "",
                  height=130 + 30 * len(points))  # fmt: skip
    for name, rows in points.items():
        if sum(map(len, points.values())) > MOST_POINTS:
            made.add_box(x=np.quantile([r[0] for r in rows], [0.05, 0.25, 0.5, 0.75, 0.95]).tolist(), y0=name, name=name, showlegend=False)
            continue
        for disturbed, symbol in ((False, "circle"), (True, "circle-open")):
            some = [r for r in rows if r[2] == disturbed]
            made.add_scatter(x=[rounded(r[0], 4) for r in some], y=[name] * len(some), mode="markers", hovertext=[r[1] for r in some],
                             hoverinfo="x+text", marker={"color": styles[name].color, "symbol": symbol, "size": 7, "opacity": 0.6},
                             showlegend=False)  # fmt: skip
    made.update_yaxes(categoryorder="array", categoryarray=list(points)[::-1])
    return made


def tradeoff(result: Result) -> Any | None:
    """The arena's two main metrics against each other, with the techniques that none beats in both."""
    if result.arena.tradeoff is None:
        return None
    a, b = result.arena.tradeoff
    places = {name: (result.interval(name, a), result.interval(name, b)) for name in result.techniques}
    points = {name: (x.figure, y.figure) for name, (x, y) in places.items() if x and y}
    if len(points) < 2:
        return None
    styles = looks(result.techniques)
    signs = [1 if result.metric(m).better == "lower" else -1 for m in (a, b)]
    front = pareto({name: (signs[0] * x, signs[1] * y) for name, (x, y) in points.items()})
    made = figure(f"{a} against {b}: mean over cases; the line joins what nothing beats in both", _axis(result, a), _axis(result, b),
                  log_x=wide_range(p[0] for p in points.values()), log_y=wide_range(p[1] for p in points.values()))  # fmt: skip
    made.add_scatter(x=[rounded(points[n][0]) for n in front], y=[rounded(points[n][1]) for n in front], mode="lines", hoverinfo="skip",
                     line={"color": "#999999", "dash": "dot"}, showlegend=False)  # fmt: skip
    for name, (x, y) in points.items():
        made.add_scatter(x=[rounded(x)], y=[rounded(y)], mode="markers+text", text=[label(result, name)], name=name,
                         textposition="top center", showlegend=False,
                         marker={"color": styles[name].color, "symbol": styles[name].symbol, "size": 11})  # fmt: skip
    return made


def pareto(points: dict[str, tuple[float, float]]) -> list[str]:
    """The names that no other point beats or equals in both coordinates (smaller is better), by the first coordinate."""
    front: list[str] = []
    best = math.inf
    for name in sorted(points, key=lambda n: points[n]):
        if points[name][1] < best:
            front.append(name)
            best = points[name][1]
    return front


def label(result: Result, technique: str) -> str:
    """A technique's name, with a mark if it sees the future and so only bounds the others."""
    return f"{technique} (oracle)" if result.arena.technique(technique).oracle else technique


def _ordered(result: Result, metric: str) -> list[str]:
    """Techniques that have the metric, best first."""
    sign = -1 if result.metric(metric).better == "higher" else 1
    levels = {name: result.interval(name, metric) for name in result.techniques}
    return sorted((name for name, spread in levels.items() if spread), key=lambda n: sign * levels[n].figure)  # type: ignore[union-attr]


def _described(result: Result, metric: str) -> str:
    facts = result.metric(metric)
    kinds = ", ".join(sorted({k for t in result.techniques for k in result.kinds(t, metric)}))
    return f"{metric} ({f'{facts.better} is better, ' if facts.better else ''}{kinds})"


def _axis(result: Result, metric: str) -> str:
    facts = result.metric(metric)
    return f"{metric}{f' [{facts.unit}]' if facts.unit else ''}"
