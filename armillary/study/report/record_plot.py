"""A record's first metric as an inline SVG: techniques from best to worst, the mean with its interval, one faint dot per case.

Drawn here because the picture must follow the page's light or dark colours (`currentColor`), which a picture file cannot, and because
the report's own plots need a browser to become pictures.
"""

from __future__ import annotations

import html
import math
from typing import Any

from armillary.records import Record

WIDTH, ROW, LEFT, RIGHT, TOP, BOTTOM = 720, 22, 170, 20, 34, 44
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#8C8C00")


def dot_plot(record: Record) -> str:
    """The SVG, or an empty string where the record has nothing to draw."""
    metric = next((m for m, facts in record.metrics.items() if facts["better"] and _rows(record, m)), None)
    if metric is None:
        return ""
    facts, rows = record.metrics[metric], _rows(record, metric)
    rows.sort(key=lambda row: row[1][0], reverse=facts["better"] == "higher")
    values = [v for _, level, dots, _ in rows for v in (*level, *dots)]
    scale = _Scale(values)
    height = TOP + ROW * len(rows) + BOTTOM
    unit = f" [{facts['unit']}]" if facts["unit"] else ""
    title = f"{metric}{unit}, {', '.join(facts['kinds'])}: {facts['better']} is better"
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{html.escape(title)}" class="dots">']
    parts.append(f'<text x="{LEFT}" y="18" class="title">{html.escape(title)}</text>')
    bottom = TOP + ROW * len(rows)
    for tick in scale.ticks():
        x = scale(tick)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}" class="grid"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{tick:.4g}</text>')
    for number, (name, level, dots, oracle) in enumerate(rows):
        y, colour = TOP + ROW * (number + 0.5), COLOURS[number % len(COLOURS)]
        shown = f"{name} (oracle)" if oracle else name
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{html.escape(shown)}</text>')
        parts += [f'<circle cx="{scale(v):.1f}" cy="{y:.1f}" r="2.5" fill="{colour}" opacity="0.3"/>' for v in dots]
        figure, low, high = level
        parts.append(f'<line x1="{scale(low):.1f}" x2="{scale(high):.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}" stroke-width="2"/>')
        words = f"{shown}: {figure:.4g} ({low:.4g} to {high:.4g})"
        parts.append(f'<circle cx="{scale(figure):.1f}" cy="{y:.1f}" r="5" fill="{colour}"><title>{html.escape(words)}</title></circle>')
    foot = f"mean over cases with its 95 % interval; recorded {record.date}, scale {record.scale}"
    parts.append(f'<text x="{LEFT}" y="{height - 8}" class="foot">{html.escape(foot)}</text></svg>')
    return "".join(parts)


def _rows(record: Record, metric: str) -> list[tuple[str, list[float], list[float], bool]]:
    """(technique, level with its interval, values by case, whether it sees the future)."""
    found = []
    for name, facts in record.techniques.items():
        level: Any = facts["levels"].get(metric)
        dots = [v for v in facts["medians"].get(metric, {}).values() if isinstance(v, int | float)]
        if level and all(isinstance(v, int | float) for v in level):
            found.append((name, [float(v) for v in level], [float(v) for v in dots], bool(facts.get("oracle"))))
    return found


class _Scale:
    """Values to places on the x axis; logarithmic where all are positive and more than fifty-fold apart."""

    def __init__(self, values: list[float]) -> None:
        self.log = min(values) > 0 and max(values) / min(values) > 50
        low, high = min(values), max(values)
        self.low, self.high = (math.log10(low), math.log10(high)) if self.log else (low, high)
        if self.high == self.low:
            self.low, self.high = self.low - 0.5, self.high + 0.5
        margin = 0.03 * (self.high - self.low)
        self.low, self.high = self.low - margin, self.high + margin

    def __call__(self, value: float) -> float:
        place = math.log10(value) if self.log else value
        return LEFT + (WIDTH - LEFT - RIGHT) * (place - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """A handful of round values inside the axis."""
        if self.log:
            step = max(1, math.ceil((self.high - self.low) / 6))
            return [10.0**e for e in range(math.ceil(self.low), math.floor(self.high) + 1, step)]
        raw = (self.high - self.low) / 5
        size = 10 ** math.floor(math.log10(raw))
        step_size = next(size * m for m in (1, 2, 5, 10) if size * m >= raw)
        first = math.ceil(self.low / step_size)
        return [round(k * step_size, 12) for k in range(first, math.floor(self.high / step_size) + 1)]
