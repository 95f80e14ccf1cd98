"""What there is, as plain text: all arenas in a line each, the arenas of a field, or one arena with its techniques.

Without rich and without loading a technique, because `armillary list` must answer at once.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from armillary import catalogue
from armillary.arena import Arena
from armillary.errors import InputError, unknown
from armillary.records import HELD, IN_PART, NOT_HELD, SYMBOLS
from armillary.wording import counted

#: Claim id to (state, figure).
Verdicts = Mapping[str, tuple[str, float | None]]


def chosen(name: str | None) -> tuple[str, list[Arena]]:
    """What a name means: ("all", …), ("field", …) or ("arena", …), with the arenas."""
    known = catalogue.arenas()
    if name is None:
        return "all", list(known.values())
    of_field = [arena for arena in known.values() if arena.field == name]
    if of_field:
        return "field", of_field
    try:
        return "arena", [catalogue.arena(name)]
    except InputError as error:
        if "several fields" in str(error):
            raise
        raise unknown("field or arena", name, [*known, *{a.field for a in known.values()}]) from None


def rows(arenas: Sequence[Arena], verdicts: Verdicts) -> list[dict[str, Any]]:
    """Every technique as plain data."""
    found = []
    for arena in arenas:
        for name in arena.techniques:
            paper = catalogue.papers().get(arena.papers.get(name, ""))
            found.append({
                "arena": arena.path, "technique": name, "paper": paper.title if paper else None, "source": paper.source if paper else None,
                "verdicts": {c: state for c, (state, _) in verdicts.items() if c.rpartition("#")[0] == f"{arena.path}/{name}"},
            })  # fmt: skip
    return found


def text(name: str | None, verdicts: Verdicts) -> str:
    """The overview that a name asks for."""
    level, arenas = chosen(name)
    if level == "arena":
        return _one(arenas[0], rows(arenas, verdicts))
    return _all(arenas, verdicts) if level == "all" else "\n\n".join(_one(a, rows([a], verdicts), published=True) for a in arenas)


def _all(arenas: Sequence[Arena], verdicts: Verdicts) -> str:
    bold, dim, off = _styles()
    width = max(len(arena.name) for arena in arenas)
    room = shutil.get_terminal_size((160, 24)).columns if sys.stdout.isatty() else 160
    lines = []
    for field in dict.fromkeys(arena.field for arena in arenas):
        lines.append(f"{bold}{field}{off}")
        for arena in (a for a in arenas if a.field == field):
            marks = _marks([state for claim, (state, _) in verdicts.items() if claim.rpartition("/")[0] == arena.path])
            tail = f"  {counted(len(set(arena.papers.values())), 'paper'):>8}  {marks}"
            question = _cut(arena.question, max(20, room - width - len(tail) - 4))
            lines.append(f"  {arena.name:<{width}}  {question}{dim}{tail}{off}")
    techniques = sum(len(arena.techniques) for arena in arenas)
    papers = len({paper for arena in arenas for paper in arena.papers.values()})
    said = f"{counted(len(arenas), 'arena')}, {counted(techniques, 'technique')}, {counted(papers, 'published system')}"
    legend = f"{SYMBOLS[HELD]} held, {SYMBOLS[IN_PART]} held in part, {SYMBOLS[NOT_HELD]} not held, claims as last judged"
    first = arenas[0]
    more = f"`armillary list {first.field}` and `armillary list {first.name}` show more."
    return "\n".join([*lines, f"{said} ({legend}).", more])


def _one(arena: Arena, techniques: Sequence[Mapping[str, Any]], *, published: bool = False) -> str:
    """An arena with its techniques, or with the published ones alone."""
    bold, dim, off = _styles()
    shown = [row for row in techniques if row["paper"] or not published]
    width = max((len(row["technique"]) for row in shown), default=0)
    lines = [f"{bold}{arena.path}{off}  {arena.question}"]
    for row in shown:
        said = "  ".join(f"{SYMBOLS[state]} #{claim.rpartition('#')[2]} {state}" for claim, state in sorted(row["verdicts"].items()))
        what = f"{row['paper']} ({row['source']})" if row["paper"] else f"{dim}baseline{off}"
        lines.append(f"  {row['technique']:<{width}}  {what}{'  ' + said if said else ''}")
    if published:
        rest = len(techniques) - len(shown)
        lines.append(f"  {dim}and {counted(rest, 'baseline')}{off}")
    return "\n".join(lines)


def _marks(states: Sequence[str]) -> str:
    count = Counter(states)
    return " ".join(f"{SYMBOLS[state]}{count[state]}" for state in (HELD, IN_PART, NOT_HELD) if count[state])


def _cut(text: str, width: int) -> str:
    return f"{text:<{width}}" if len(text) <= width else f"{text[: width - 1]}…"


def _styles() -> tuple[str, str, str]:
    colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return ("\033[1m", "\033[2m", "\033[0m") if colours else ("", "", "")
