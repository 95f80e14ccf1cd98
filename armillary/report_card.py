"""What became of every paper, and of every question: made from the records, for the documentation and the page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from armillary import catalogue
from armillary.arena import Arena
from armillary.catalogue import Paper
from armillary.records import HELD, IN_PART, NOT_HELD, NOT_TRIED, SYMBOLS, Record

STATES = (HELD, IN_PART, NOT_HELD, NOT_TRIED)
#: The longest first sentence of an answer that is shown whole.
LONGEST = 260


@dataclass(frozen=True)
class Line:
    """A paper with the technique that stands for it, and what its recorded claims came to; no technique where it is still to come."""

    paper: Paper
    arena: Arena | None
    technique: str | None
    record: Record | None

    @property
    def verdicts(self) -> list[Mapping[str, Any]]:
        """The recorded verdicts on its claims."""
        return self.record.of(self.technique) if self.record is not None and self.technique is not None else []

    @property
    def counts(self) -> tuple[int, ...]:
        """How many claims are held, held in part, not held and not tried."""
        if self.arena is None or self.technique is None:
            return (0, 0, 0, 0)
        if self.record is None:
            return (0, 0, 0, len(self.arena.claims_of(self.technique)))
        return tuple(sum(v["state"] == state for v in self.verdicts) for state in STATES)


def report_card(arenas: Mapping[str, Arena], records: Mapping[str, Record]) -> list[Line]:
    """A line per paper, in the order of papers.toml."""
    homes = {paper: (arena, name) for arena in reversed(list(arenas.values())) for name, paper in reversed(arena.papers.items())}
    lines = []
    for key, paper in catalogue.papers().items():
        arena, name = homes.get(key, (None, None))
        lines.append(Line(paper, arena, name, records.get(arena.path) if arena is not None else None))
    return lines


def first_of_each_paper(arena: Arena) -> list[str]:
    """One technique per paper: variants of a system are not listed again."""
    return list({paper: name for name, paper in reversed(arena.papers.items())}.values())[::-1]


def first_sentence(text: str) -> str:
    """The first sentence of an answer, cut at 260 characters."""
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z])|\n", text.strip(), maxsplit=1)[0]
    return sentence if len(sentence) <= LONGEST else sentence[: LONGEST - 3].rsplit(" ", 1)[0] + " …"


def figure(verdict: Mapping[str, Any]) -> str:
    """A verdict's figure with its unit and interval."""
    if verdict["figure"] is None:
        return "–"
    around = "" if verdict["low"] is None or verdict["high"] is None else f" ({number(verdict['low'])} to {number(verdict['high'])})"
    return f"{number(verdict['figure'])}{verdict['unit']}{around}"


def number(value: float) -> str:
    """Three significant digits, without the sign of a negative zero."""
    return f"{float(value) + 0.0:.3g}"


def state(verdict: Mapping[str, Any]) -> str:
    """A verdict's state with its symbol, as `state_in_words` says it."""
    return f"{SYMBOLS[verdict['state']]} {state_in_words(verdict['state'], bool(verdict.get('beyond')), verdict['stand_in'])}"


def state_in_words(state: str, beyond: bool, stand_in: str | None) -> str:
    """The state, whether the figure lies beyond the published range, and the stand-in on which the verdict rests."""
    return f"{state}{', beyond the published range' if beyond else ''}" + (
        f", with a stand-in ({stand_in})" if stand_in and state != NOT_TRIED else ""
    )
