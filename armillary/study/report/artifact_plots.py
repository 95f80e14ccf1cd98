"""Figures made from the artifacts that units left beside their metrics: distributions, and a timeline."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.arena import QUANTILES
from armillary.figures import figure, panels, rounded

if TYPE_CHECKING:
    from armillary.study.result import Left, Result

MOST_PANELS, MOST_BARS, MOST_LANES = 12, 3_000, 48
#: Bars of a lane before one zooms out.
SHOWN_AT_FIRST = 60
TIMELINE = "timeline.json"
#: Events that differ by numbers alone ("512 tokens") share a colour.
NUMBERS = re.compile(r"[#\d.,]+")


def distributions(result: Result) -> list[Any]:
    """One figure per kind of distribution, one panel per case, one line per technique: the share of values at or below x."""
    found: dict[tuple[str, str], dict[str, dict[str, list[tuple[float | str, float]]]]] = {}
    for one in result.artifacts:
        if one.media == QUANTILES and one.repeat == 0:
            said = json.loads(result.artifact(one))
            levels = said["quantiles"]
            if levels:
                shares = np.linspace(0, 1, len(levels))
                panel = found.setdefault((said["of"], said["unit"]), {}).setdefault(one.case, {})
                panel[one.technique] = [(value, float(share)) for value, share in zip(levels, shares, strict=True)]
    made = []
    for (of, unit), cases in found.items():
        shown = dict(list(cases.items())[:MOST_PANELS])
        cut = f" (the first {MOST_PANELS} of {len(cases)} cases)" if len(cases) > MOST_PANELS else ""
        drawn = panels(shown, f"{of}: share at or below{cut}", f"{of} [{unit}]" if unit else of, "share", log_x=True)
        drawn.update_traces(mode="lines")
        made.append(drawn)
    return made


def timeline(result: Result) -> Any | None:
    """The timeline of the best technique on the first case that has one: one lane per thread, one bar per event."""
    first = next((m for m in result.metrics if result.metric(m).better), None)
    best = {} if first is None else {name: place for place, (name, _) in enumerate(result.ranking(first))}
    kept = [one for one in result.artifacts if one.name == TIMELINE and one.repeat == 0]
    if not kept:
        return None
    one = min((k for k in kept if k.case == kept[0].case), key=lambda k: best.get(k.technique, len(best)))
    return _drawn(one, json.loads(result.artifact(one)))


def _drawn(one: Left, trace: Any) -> Any | None:
    events = trace["traceEvents"] if isinstance(trace, Mapping) else trace
    names = {(e["pid"], e.get("tid", 0)): e["args"]["name"] for e in events if e.get("ph") == "M" and e.get("name") == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in events if e.get("ph") == "M" and e.get("name") == "process_name"}
    spans = sorted((e for e in events if e.get("ph") == "X"), key=lambda e: e["ts"])
    lanes = list(dict.fromkeys((e["pid"], e.get("tid", 0)) for e in spans))[:MOST_LANES]
    bars = [e for e in spans if (e["pid"], e.get("tid", 0)) in set(lanes)][:MOST_BARS]
    if not bars:
        return None
    labels = {lane: f"{processes.get(lane[0], '')} {names.get(lane, lane[1])}".strip() for lane in lanes}
    cut = f", the first {len(bars):,} of {len(spans):,} events" if len(bars) < len(spans) else ""
    made = figure(f"Timeline of {one.technique} on {one.case}{cut}", "s (a double click shows all)", "", height=160 + 22 * len(lanes))
    kinds: dict[str, list[Any]] = {}
    for event in bars:
        kinds.setdefault(NUMBERS.sub("", str(event["name"])).strip() or "events", []).append(event)
    for kind, mine in kinds.items():
        made.add_bar(
            base=[rounded(e["ts"] / 1e6, 9) for e in mine], x=[rounded(e["dur"] / 1e6) for e in mine], orientation="h", name=kind,
            y=[labels[e["pid"], e.get("tid", 0)] for e in mine], text=[str(e["name"]) for e in mine], textposition="none",
            marker={"line": {"width": 0.5, "color": "white"}}, hovertemplate="%{text}: from %{base} s, %{x} s<extra></extra>",
        )  # fmt: skip
    made.update_layout(barmode="overlay", dragmode="zoom")
    first = bars[: SHOWN_AT_FIRST * len(lanes)]
    made.update_xaxes(range=[first[0]["ts"] / 1e6, max(e["ts"] + e["dur"] for e in first) / 1e6])
    made.update_yaxes(autorange="reversed", type="category")
    return made
