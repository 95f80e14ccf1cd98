"""What do you want to know? The questions of all arenas, each with its recorded answer and the marks of its papers."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from armillary import catalogue, report_card
from armillary.arena import Arena
from armillary.records import HELD, IN_PART, NOT_HELD, NOT_TRIED, SYMBOLS, records

KINDS = ("measured", "simulated", "modelled")
STATES = (HELD, IN_PART, NOT_HELD, NOT_TRIED)


@dataclass(frozen=True)
class Line:
    """A question as it stands in the list."""

    arena: Arena
    answer: str
    #: (technique, its marks) of each paper's first technique.
    marks: list[tuple[str, str]]
    states: frozenset[str]
    kinds: frozenset[str]
    #: Everything that a search looks at, in small letters.
    text: str


@functools.cache
def lines() -> list[Line]:
    """A line per arena; neither arenas nor records change while the server runs."""
    papers = catalogue.papers()
    found = []
    for arena in catalogue.arenas().values():
        record = records().get(arena.path)
        verdicts = record.verdicts if record else ()
        marks = [(n, " ".join(SYMBOLS[v["state"]] for v in record.of(n)) if record else "") for n in report_card.first_of_each_paper(arena)]
        kinds = {m.kind for m in arena.metrics.values()}
        titles = [papers[key].title for key in arena.papers.values()]
        words = [arena.path, arena.question, record.answer if record else "", *arena.techniques, *titles]
        answer = report_card.first_sentence(record.answer) if record else ""
        states = frozenset(v["state"] for v in verdicts) or frozenset({NOT_TRIED})
        shown = frozenset(KINDS[:2] if "by case" in kinds else ()) | (kinds & set(KINDS))
        found.append(Line(arena, answer, marks, states, shown, " ".join(words).lower()))
    return found


def start(request: Request, explorer: Any, pages: Any) -> Any:
    """The list, filtered as the query says; the page's script filters the same way as one types."""
    asked = {name: request.query_params.get(name, "")[:200] for name in ("q", "field", "verdict", "kind")}
    words = asked["q"].lower().split()
    every = lines()
    shown = {
        line.arena.path: line.arena.field
        for line in every
        if all(word in line.text for word in words)
        and asked["field"] in ("", line.arena.field)
        and (not asked["verdict"] or asked["verdict"] in line.states)
        and (not asked["kind"] or asked["kind"] in line.kinds)
    }
    fields = list(dict.fromkeys(line.arena.field for line in every))
    return pages(
        "start", lines=every, shown=shown, shown_fields=set(shown.values()), asked=asked, fields=fields, states=STATES, kinds=KINDS
    )


ROUTES = [("/", ["GET"], start)]
