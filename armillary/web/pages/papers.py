"""The report card: every paper with its claims, their figures, intervals, states and reasons."""

from __future__ import annotations

import functools
from typing import Any

from starlette.requests import Request

from armillary import catalogue, report_card
from armillary.records import records


def _last_without_record(line: report_card.Line, state: int) -> int:
    """The order by how many claims are in a state; claims are only counted in records, as counting others would import techniques."""
    return -line.counts[state] if line.record is not None else 1


@functools.cache
def report() -> tuple[report_card.Line, ...]:
    """The report card; neither arenas nor records change while the server runs."""
    return tuple(report_card.report_card(catalogue.arenas(), records()))


ORDERS = {
    "paper": lambda line: line.paper.title.lower(),
    "arena": lambda line: line.paper.arena,
    "held": lambda line: _last_without_record(line, 0),
    "part": lambda line: _last_without_record(line, 1),
    "not": lambda line: _last_without_record(line, 2),
    "untried": lambda line: _last_without_record(line, 3),
}


def papers(request: Request, explorer: Any, pages: Any) -> Any:
    """All papers, in the order that the query asks for."""
    order = request.query_params.get("sort", "paper")
    order = order if order in ORDERS else "paper"
    return pages("papers", card=sorted(report(), key=ORDERS[order]), order=order, orders=list(ORDERS))


ROUTES = [("/papers", ["GET"], papers)]
