"""Plotly figures that read alike everywhere: one palette, one look, made from plain data.

Colours are Okabe and Ito's, which people with colour-blindness can tell apart; where there are more series than colours, the marker's
shape and the line's dash go on telling them apart.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C00")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "hexagon")
DASHES = ("solid", "dash", "dot", "dashdot")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
#: Orange, white, blue: worse, equal, better.
DIVERGING = ((0.0, "#B35806"), (0.25, "#F1A340"), (0.5, "#F7F7F7"), (0.75, "#67A9CF"), (1.0, "#2166AC"))


@dataclass(frozen=True)
class Look:
    """How one series is drawn, everywhere the same."""

    color: str
    symbol: str
    dash: str


#: Series that one panel can hold in colour.
MOST_LINES = 8
FAINT = Look("#c8ccd0", "circle", "solid")


def looks(names: Iterable[str]) -> dict[str, Look]:
    """A look for each name, in order."""
    found = {}
    for i, name in enumerate(names):
        turn = i // len(OKABE_ITO)
        found[name] = Look(OKABE_ITO[i % len(OKABE_ITO)], SYMBOLS[(i + turn) % len(SYMBOLS)], DASHES[turn % len(DASHES)])
    return found


def figure(title: str, x: str, y: str, *, height: int = 420, log_x: bool = False, log_y: bool = False) -> Any:
    """An empty figure in the house look; titles wrap by themselves on narrow screens."""
    import plotly.graph_objects as go

    made = go.Figure()
    made.update_layout(
        template="plotly_white", title={"text": _wrapped(title), "x": 0, "xanchor": "left", "font": {"size": 16}}, height=height,
        font={"family": FONT, "size": 13}, margin={"l": 10, "r": 10, "t": 60, "b": 40}, hoverlabel={"font": {"family": FONT}},
        legend={"orientation": "h", "y": -0.2}, dragmode=False,
    )  # fmt: skip
    made.update_xaxes(title_text=x, type="log" if log_x else None, automargin=True)
    made.update_yaxes(title_text=y, type="log" if log_y else None, automargin=True)
    return made


def wide_range(values: Iterable[float]) -> bool:
    """Whether a log axis serves better: all positive, and more than fifty-fold apart."""
    found = [v for v in values if math.isfinite(v)]
    return bool(found) and min(found) > 0 and max(found) / min(found) > 50


def panels(
    lines: Mapping[str, Mapping[str, Sequence[tuple[float | str, float]]]],
    title: str,
    x: str,
    y: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    columns: int = 3,
    bold: Collection[str] = (),
) -> Any:
    """Small multiples: panel to series to (x, y) points, all panels on the same x axis, one legend. x may be names.

    Of more than `MOST_LINES` series those in `bold` are drawn in colour and named; the others are thin grey lines that show their name
    when one points at them.
    """
    from plotly.subplots import make_subplots

    rows = -(-len(lines) // columns)
    spacing = 0.3 / (rows + 1)
    grid = make_subplots(rows=rows, cols=min(columns, len(lines)), subplot_titles=list(lines), shared_xaxes=True, vertical_spacing=spacing)
    names = dict.fromkeys(name for panel in lines.values() for name in panel)
    shown = [name for name in names if name in bold][:MOST_LINES] if len(names) > MOST_LINES and bold else list(names)
    styles = looks(shown)
    named: set[str] = set()
    for i, panel in enumerate(lines.values()):
        for name, points in sorted(panel.items(), key=lambda item: item[0] in styles):
            look = styles.get(name, FAINT)
            new = name not in named and name in styles
            named.add(name)
            grid.add_scatter(
                x=[p[0] for p in points], y=[rounded(p[1]) for p in points], name=name, legendgroup=name, showlegend=new,
                mode="lines+markers" if name in styles else "lines", marker={"symbol": look.symbol, "size": 6},
                line={"color": look.color, "dash": look.dash, "width": 2 if name in styles else 1},
                row=i // columns + 1, col=i % columns + 1,
            )  # fmt: skip
    frame = figure(title, "", "", height=230 * rows + 140)
    grid.update_layout(frame.layout.to_plotly_json() | {"xaxis": {}, "yaxis": {}})
    grid.update_layout(legend={"orientation": "h", "y": -0.18 / rows - 0.06})
    grid.update_xaxes(type="log" if log_x else None, automargin=True)
    grid.update_xaxes(title_text=x, row=rows)
    grid.update_yaxes(type="log" if log_y else None, automargin=True)
    grid.update_yaxes(title_text=y, col=1)
    return grid


def rounded(value: float, digits: int = 6) -> float:
    """To this many significant digits: what a plot can show."""
    return value if value == 0 or not math.isfinite(value) else float(f"{value:.{digits}g}")


def _wrapped(title: str, width: int = 78) -> str:
    import textwrap

    return "<br>".join(textwrap.wrap(title, width))
