"""The report as one HTML page, which says what was asked, what came out, how sure that is, and how it was done.

Nothing is fetched when it opens, and the page forbids itself to. Every string that comes from a user, a file or a technique is
escaped, and data reaches the page's script as JSON that cannot end its own element.
"""

from __future__ import annotations

import base64
import functools
import gzip
import html
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import armillary
from armillary.arena import QUANTILES, parameters
from armillary.errors import without_paths
from armillary.records import SYMBOLS
from armillary.study.gains import LEVEL, RESAMPLES
from armillary.study.report import artifact_plots, plots
from armillary.study.verdicts import families, family_ours, family_says, family_state

if TYPE_CHECKING:
    from armillary.study.result import Result

HERE = Path(__file__).parent
MOST_ROWS = 1_000
#: The most bytes of compressed artifacts that a page carries.
MOST_LEFT_BYTES = 3 << 18
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
STATE_CLASS = {"held": "held", "held in part": "part", "not held": "not", "not tried": "untried"}


def render(result: Result) -> str:
    """The whole page."""
    drawn = _Plots()
    body = "".join(
        section
        for section in (
            _opening(result),
            _verdicts(result),
            *(_metric(result, metric, drawn) for metric in result.metrics if any(result.kinds(t, metric) for t in result.techniques)),
            _tradeoff(result, drawn),
            _own_plots(result, drawn),
            _distributions(result, drawn),
            _left(result, drawn),
            _troubles(result),
            _method(result),
            _environment(result),
            _everything(result),
        )
    )
    library = f'<script type="application/gzip" id="plotly">{_plotly()}</script>' if drawn.count else ""
    style, script = (HERE / "page.css").read_text(), (HERE / "page.js").read_text()
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
    head = f'<meta charset="utf-8">{policy}{view}'
    title = _e(f"{result.arena.path}: {result.arena.question}")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}<title>{title}</title><style>{style}</style></head>\n'
        f"<body><main>{body}</main>\n{library}<script>{script}</script></body></html>\n"
    )


class _Plots:
    """The plots of a page, numbered as they come."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, figure: Any, columns: Sequence[str] = (), rows: Iterable[Sequence[Any]] = ()) -> str:
        """A figure's place, its data, and below it the same as a table."""
        if figure is None:
            return ""
        self.count += 1
        name = f"plot{self.count}"
        data = json.dumps(_plain(json.loads(figure.to_json())), separators=(",", ":")).replace("<", "\\u003c")
        said = _e((figure.layout.title.text or "").replace("<br>", " "))
        height = f' style="height:{int(figure.layout.height)}px"' if figure.layout.height else ""
        below = f"<details><summary>As a table</summary>{_table(columns, rows)}</details>" if columns else ""
        holder = f'<div class="plot" id="{name}" role="img" aria-label="{said}"{height}></div>'
        return f'{holder}<script type="application/json" id="{name}-data">{data}</script>{below}'


def _plain(value: Any) -> Any:
    """A figure whose texts are only text: Plotly would make links of what looks like one in a name."""
    if isinstance(value, str):
        escaped = value.replace("<", "&lt;")
        return escaped.replace("&lt;br>", "<br>").replace("&lt;extra>&lt;/extra>", "<extra></extra>")
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def _opening(result: Result) -> str:
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(result.created))
    kept = f"study {result.study}, seed {result.seed}, {len(result.units)} units, Armillary {armillary.__version__}"
    links = {"verdicts": "Verdicts", "metrics": "Metrics", "method": "Method", "environment": "Environment", "values": "All values"}
    nav = "".join(f'<a href="#{target}">{label}</a>' for target, label in links.items())
    return (
        f"<h1>{_e(result.arena.question)}</h1><p class='meta'>{_e(result.arena.path)} · {when} · {_e(kept)}</p>"
        f"<p class='answer'>{_e(result.answer())}</p><nav>{nav}</nav>"
    )


def _verdicts(result: Result) -> str:
    if not result.verdicts:
        return "<h2 id='verdicts'>Verdicts</h2><p>None of these techniques makes a claim.</p>"
    columns = ("claim", "state", "ours (interval)", "published", "kind", "why")
    rows = []
    for family in families(result.verdicts):
        v = family[0]
        honest = f"<br><span class='soft'>{_e(v.honest)}</span>" if v.honest else ""
        claim = f"{_e(v.technique)}: {_e(family_says(family))}{honest}"
        if len(family) == 1:
            rows.append((_Raw(claim), _Raw(_state(v.state, v.state_in_words)), v.ours, v.published, v.kind, v.reason))
            continue
        states = {one.state for one in family}
        state = _state(v.state if len(states) == 1 else "", family_state(family))
        each = _table(("rival", "state", "ours (interval)", "why"), [
            (one.over[0], _Raw(_state(one.state, one.state_in_words)), one.ours, one.reason) for one in family
        ])  # fmt: skip
        opened = _Raw(f"{claim}<details><summary>Each of the {len(family)} rivals</summary>{each}</details>")
        rows.append((opened, _Raw(state), family_ours(family), v.published.partition(" than ")[0], v.kind, ""))
    note = "Intervals are 95 %. Many claims are judged at once; no correction for multiplicity is made."
    table = _table(columns, rows, kind="verdicts")
    near = _influence(result)
    return f"<h2 id='verdicts'>Verdicts</h2>{table}<p class='soft'>{note}</p>{near}"


def _state(state: str, words: str) -> str:
    symbol = f"{SYMBOLS[state]} " if state else ""
    return f"<span class='state {STATE_CLASS.get(state, '')}'>{symbol}{_e(words)}</span>"


def _influence(result: Result) -> str:
    if len(result.units) > 20_000:
        return ""
    lines = result.influence()
    if not lines:
        return ""
    items = "".join(f"<li>{_e(line)}</li>" for line in lines[:50])
    return f"<details><summary>{len(lines)} verdicts depend on a single case</summary><ul>{items}</ul></details>"


def _metric(result: Result, metric: str, drawn: _Plots) -> str:
    facts = result.metric(metric)
    anchor = " id='metrics'" if metric == result.metrics[0] else ""
    rows = []
    for r in result.summary([metric]).to_dicts():
        around = "–" if r["low"] is None else f"{_n(r['low'])} to {_n(r['high'])}"
        rows.append((plots.label(result, r["technique"]), _n(r["median"]), _n(r["gain"]), around, r["wins"], r["cases"]))
    columns = ("technique", ">median over cases", f">gain over {result.baseline}", ">interval", ">best on", ">cases")
    parts = [f"<h2{anchor}>{_e(metric)}{_e(f' [{facts.unit}]') if facts.unit else ''}</h2><p class='soft'>{_e(_about(result, metric))}</p>"]
    parts.append(drawn.add(plots.dots(result, metric), columns, rows))
    if facts.better is not None and len(result.techniques) > 1 and len(result.cases) > 1:
        found = {t: result.gains(t, result.baseline, metric) for t in result.techniques}
        table = [(t, *(_n(g.medians().get(c)) for c in result.cases)) for t, g in found.items() if g]
        parts.append(drawn.add(plots.heat(result, metric), ("technique", *(f">{c}" for c in result.cases)), table))
    parts += [drawn.add(plots.lines(result, metric, parameter)) for parameter in _numeric(result)]
    if any(result.kinds(t, metric) == {"measured"} for t in result.techniques):
        parts.append(drawn.add(plots.repeats(result, metric)))
    return "".join(parts)


def _about(result: Result, metric: str) -> str:
    facts = result.metric(metric)
    kinds = ", ".join(sorted({k for t in result.techniques for k in result.kinds(t, metric)}))
    better = f"{facts.better} is better; " if facts.better else ""
    return f"{better}{kinds}. {facts.doc}"


def _numeric(result: Result) -> list[str]:
    """Numeric parameters of the cases that take three values or more."""
    names = dict.fromkeys(name for facts in result.cases.values() for name in facts["parameters"])
    return [name for name in names if len(set(result.case_parameter(name).values())) >= 3]


def _tradeoff(result: Result, drawn: _Plots) -> str:
    made = plots.tradeoff(result)
    return "" if made is None else "<h2>Trade-off</h2>" + drawn.add(made)


def _own_plots(result: Result, drawn: _Plots) -> str:
    figures = list(result.arena._plots(result)) if result.arena._plots is not None else []
    return "<h2>More about this question</h2>" + "".join(drawn.add(f) for f in figures) if figures else ""


def _distributions(result: Result, drawn: _Plots) -> str:
    figures = artifact_plots.distributions(result)
    return "<h2>Distributions</h2>" + "".join(drawn.add(f) for f in figures) if figures else ""


def _left(result: Result, drawn: _Plots) -> str:
    """A timeline to look at, and every artifact to take away as far as the page can carry them."""
    rows, room = [], MOST_LEFT_BYTES
    for one in result.artifacts:
        where = f"{one.size:,} B in the store"
        if one.media != QUANTILES and one.size < 8 * room:
            data = _zipped(result.artifact(one))
            if len(data) <= room:
                room -= len(data)
                name = _e(f"{one.technique}-{one.case}-{one.repeat}-{one.name}.gz".replace("/", "-"))
                where = _Raw(f'<a download="{name}" href="{_data(data)}">{_e(one.name)}.gz</a>')
        rows.append((one.technique, one.case, one.repeat, one.name, where))
    if not rows:
        return ""
    shown = artifact_plots.timeline(result)
    said = "" if shown is None else drawn.add(shown) + "<p class='soft'>Every timeline below can be opened in Perfetto.</p>"
    listed = _table(("technique", "case", ">repeat", "artifact", "file"), rows)
    return f"<h2 id='artifacts'>Timelines and other files</h2>{said}<details><summary>{len(rows)} files</summary>{listed}</details>"


def _troubles(result: Result) -> str:
    groups: dict[tuple[str, str, str], list[Any]] = defaultdict(list)
    for unit in (*result.failed, *result.declined):
        why = without_paths(unit["error"] or unit["reason"] or "")
        groups[unit["state"], unit["technique"], why].append(unit)
    noisy, stale = (sum(bool(u[key]) for u in result.units) for key in ("noisy", "stale"))
    said = ""
    if groups:
        rows = [(state, technique, len(units), units[0]["case"], why) for (state, technique, why), units in sorted(groups.items())]
        said = _table(("state", "technique", ">units", "for example on", "why"), rows)
        traces = [u for u in result.failed if u["traceback"]][:5]
        for u in traces:
            title = f"Trace of {_e(u['technique'])} on {_e(u['case'])}"
            said += f"<details class='raw'><summary>{title}</summary><pre>{_e(without_paths(u['traceback']))}</pre></details>"
    if noisy:
        said += f"<p>{noisy} of {len(result.units)} units ran while the machine was more than 25 % slower than at its best (noisy).</p>"
    if stale:
        said += f"<p>{stale} units are stale: the code changed since they ran.</p>"
    return f"<h2>Failures, declined and noisy units</h2>{said}" if said else ""


def _method(result: Result) -> str:
    arena = result.arena
    kinds = defaultdict(list)
    for metric in result.metrics:
        for kind in sorted({k for t in result.techniques for k in result.kinds(t, metric)}):
            kinds[kind].append(metric)
    meaning = {
        "measured": "this machine did it",
        "simulated": "it happened in simulated time, event by event",
        "modelled": "a formula gave it",
    }
    items = [f"<li><b>{kind}</b> ({meaning[kind]}): {_e(', '.join(names))}</li>" for kind, names in sorted(kinds.items())]
    items.append(
        "<li>Every technique met the same work: gains are paired by case and repeat, joined by the median over repeats and the geometric "
        "mean over cases (the mean of differences for metrics on a difference scale).</li>"
    )
    items.append(
        f"<li>Intervals of {100 * LEVEL:.0f} % are Student's over the cases' medians, widened towards the side on which they are skewed. "
        f"Those of a single case, or of the best case, come from a hierarchical bootstrap over cases and repeats with {RESAMPLES:,} "
        "resamples from a fixed stream. Nothing is held with fewer than four cases.</li>"
    )
    items.append("<li>Best on a case: no other technique's median is better by more than 1 % (0.001 for differences).</li>")
    changed = []
    for name, values in result.techniques.items():
        usual = arena.make(name) if name in arena.techniques else None
        defaults = {p: getattr(usual, p, None) for p in parameters(arena.technique(name))}
        for key, value in values.items():
            default = defaults.get(key)
            if value != (list(default) if isinstance(default, tuple) else default):
                changed.append((name, key, json.dumps(value), json.dumps(default, default=str)))
    settings = _table(("technique", "parameter", "value", "default"), changed) if changed else "<p>Every parameter is at its default.</p>"
    constants = ""
    if arena.constants:
        rows = [(c.name, c.value, c.unit, c.source) for c in arena.constants]
        constants = "<h3>Constants</h3>" + _table(("name", ">value", "unit", "source"), rows)
    cases = _table(
        ("case", "kinds", "parameters"),
        [(n, ", ".join(f["kinds"]), json.dumps(f["parameters"], sort_keys=True)) for n, f in result.cases.items()],
    )
    command = f"<p class='soft'>{_e(without_paths(result.command))}</p>" if result.command else ""
    listed = f"<details><summary>{len(result.cases)} cases</summary>{cases}</details>"
    return f"<h2 id='method'>Method</h2>{command}<ul>{''.join(items)}</ul><h3>Parameters</h3>{settings}{constants}{listed}"


def _environment(result: Result) -> str:
    used = {u["environment"] for u in result.units if u["environment"] is not None}
    said = "".join(
        _table(
            ("fact", "value"),
            [(k, without_paths(v if isinstance(v, str) else json.dumps(v))) for k, v in sorted(result.environments[key].items())],
        )
        for key in sorted(used)
    )
    return f"<h2 id='environment'>Environment</h2>{said or '<p>Nothing was run.</p>'}"


def _everything(result: Result) -> str:
    table = result.table()
    link = _data(_zipped(result.csv().encode()))
    name = result.arena.path.replace("/", "-")
    columns = ("technique", "case", "repeat", "metric", "kind", "value", "noisy")
    shown = table.filter(table["metric"].is_not_null()).head(MOST_ROWS).select(columns)
    rows = [(t, c, r, m, k, _n(v, 6), "yes" if noisy else "") for t, c, r, m, k, v, noisy in shown.iter_rows()]
    cut = f" (the first {MOST_ROWS:,} of {table.height:,}; the file has all)" if table.height > MOST_ROWS else ""
    listed = _table(("technique", "case", ">repeat", "metric", "kind", ">value", "noisy"), rows, kind="sortable")
    download = f'<p><a download="{_e(name)}.csv.gz" href="{link}">Download every value as CSV (gzip)</a>{cut}</p>'
    return f"<h2 id='values'>All values</h2>{download}<details class='raw'><summary>{len(rows):,} values</summary>{listed}</details>"


def _zipped(data: bytes) -> bytes:
    return gzip.compress(data, 6, mtime=0)


def _data(packed: bytes) -> str:
    return f"data:application/gzip;base64,{base64.b64encode(packed).decode()}"


class _Raw(str):
    """HTML that was made here and needs no escaping."""


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, kind: str = "") -> str:
    """A table; columns whose name starts with ">" hold numbers."""
    numeric = [column.startswith(">") for column in columns]
    right = [" class=n" if n else "" for n in numeric]
    head = "".join(f"<th{side}>{_e(column.lstrip('>'))}</th>" for column, side in zip(columns, right, strict=True))
    # Only the table that becomes a list of cards on a narrow screen needs its columns' names in every cell.
    labels = [_e(column.lstrip(">")) if kind == "verdicts" else "" for column in columns]
    lines = []
    for row in rows:
        cells = (
            f'<td{side} data-label="{label}">{cell if isinstance(cell, _Raw) else _e(cell)}</td>'
            for cell, side, label in zip(row, right, labels, strict=True)
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    body = "".join(lines).replace(' data-label=""', "")
    return f"<div class='scroll'><table class='{kind}'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _n(value: float | None, digits: int = 4) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}g}"


def _e(text: Any) -> str:
    return html.escape(str(text), quote=True)


@functools.cache
def _plotly() -> str:
    """Plotly's script, packed: the page unpacks it, and is a third as large."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(str(get_plotlyjs()).encode(), 9, mtime=0)).decode()
