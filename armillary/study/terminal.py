"""Results as tables for a terminal; plain ASCII where it is none."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from armillary.records import SYMBOLS
from armillary.study.verdicts import Verdict, families, family_ours, family_says, family_state

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from armillary.study.result import Result

WIDE = 200


def console() -> Console:
    """A console on stdout: colours and lines on a terminal, ASCII of fixed width elsewhere; NO_COLOR is kept."""
    from rich.console import Console

    live = sys.stdout.isatty()
    plain = "NO_COLOR" in os.environ or not live
    return Console(no_color=plain, highlight=False, width=None if live else WIDE, emoji=False, markup=False)


def table(*columns: str, title: str | None = None) -> Table:
    """An empty table; columns whose name starts with ">" are right-aligned."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD if sys.stdout.isatty() else box.ASCII2, header_style="bold")
    for column in columns:
        made.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    return made


def print_result(result: Result, out: Console) -> None:
    """The answer, the summary, the verdicts and what failed."""
    shown, left = fitting(result, out.width)
    out.print(summary(result, shown))
    if left:
        out.print(f"not shown for want of room: {', '.join(left)} (--metrics, --csv or --html)", style="dim")
    out.print(result.answer(), style="bold")
    verdicts = [v for v in result.verdicts if v.state != "not tried"]
    if verdicts:
        out.print(verdict_table(verdicts))
    for unit in result.failed[:5]:
        out.print(f"failed: {unit['technique']} on {unit['case']}, repeat {unit['repeat']}: {unit['error']}", style="red")
    if len(result.failed) > 5:
        out.print(f"… and {len(result.failed) - 5} more failures", style="red")
    declined = {(u["technique"], u["reason"]) for u in result.declined}
    for technique, reason in sorted(declined):
        out.print(f"declined: {technique}: {reason}")
    noisy = sum(bool(u["noisy"]) for u in result.units)
    if noisy:
        out.print(f"{noisy} of {len(result.units)} units ran while the machine was disturbed (noisy)")


def fitting(result: Result, width: int) -> tuple[list[str], list[str]]:
    """(metrics that a table of `width` columns has room for, the rest); the first one is always shown."""
    metrics = [m for m in result.metrics if any(result.medians(t, m) for t in result.techniques)]
    room = width - max(map(len, result.techniques), default=0) - len(" (oracle)") - 45
    shown: list[str] = []
    for metric in metrics:
        room -= max(len(line) for line in _heading(result, metric).splitlines()) + 3
        if shown and room < 0:
            break
        shown.append(metric)
    return shown, metrics[len(shown) :]


def summary(result: Result, metrics: Sequence[str]) -> Table:
    """One row a technique: median of each metric over cases, gain over the baseline in the first one, and wins."""
    main = next((m for m in metrics if result.metric(m).better), None)
    title = f"{result.arena.path}: medians over {len(result.cases)} case{'s' if len(result.cases) != 1 else ''}"
    made = table("technique", *(">" + _heading(result, m) for m in metrics), *_gain_headings(result, main), title=title)
    rows = {(r["technique"], r["metric"]): r for r in result.summary(metrics).to_dicts()}
    order = [name for name, _ in result.ranking(main)] if main else []
    for technique in sorted(result.techniques, key=lambda t: order.index(t) if t in order else len(order)):
        cells = [number(rows[technique, m]["median"]) if (technique, m) in rows else "–" for m in metrics]
        mark = " (oracle)" if result.arena.technique(technique).oracle else ""
        made.add_row(technique + mark, *cells, *_gain_cells(rows.get((technique, main or "")), main))
    return made


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """Claim, published figure, ours with its interval, state, kind; claims that say the same of several rivals are one row."""
    made = table("claim", "published", "ours (95 % interval)", "state", "kind", "why")
    for family in families(verdicts):
        v, state = family[0], family_state(family)
        published = v.published if len(family) == 1 else v.published.partition(" than ")[0]
        symbol = f"{SYMBOLS[v.state]} " if len({one.state for one in family}) == 1 else ""
        made.add_row(family_says(family), published, family_ours(family), f"{symbol}{state}", v.kind, v.reason if len(family) == 1 else "")
    return made


def table_of(rows: Sequence[Mapping[str, Any]], *columns: str) -> Table:
    """Rows of plain data as a table."""
    made = table(*columns)
    for row in rows:
        cells = [row[column.lstrip(">")] for column in columns]
        made.add_row(*(number(cell) if isinstance(cell, float) else str(cell) for cell in cells))
    return made


def number(value: float | None) -> str:
    """Three or four significant digits, thousands shortened."""
    if value is None:
        return "–"
    size = abs(value)
    for limit, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / (1e3 if suffix == 'k' else limit):.3g}{suffix}"
    return f"{value:.4g}"


def _heading(result: Result, metric: str) -> str:
    facts = result.metric(metric)
    kinds = sorted({k for t in result.techniques for k in result.kinds(t, metric)})
    return f"{metric}{f' [{facts.unit}]' if facts.unit else ''}\n{', '.join(kinds)}"


def _gain_headings(result: Result, main: str | None) -> tuple[str, ...]:
    return (f">gain in {main}\nover {result.baseline}", ">best\non") if main and len(result.techniques) > 1 else ()


def _gain_cells(row: dict[str, Any] | None, main: str | None) -> tuple[str, ...]:
    if row is None or main is None:
        return ()
    gain = f"{row['gain']:.3f} ({row['low']:.3f} to {row['high']:.3f})" if row["gain"] is not None else "–"
    return gain, f"{row['wins']}/{row['cases']}"
