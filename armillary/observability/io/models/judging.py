"""Lets a language model judge a fragment, and believes of its answer only what the fragment holds.

Every number must be one of the fragment's, within 1 %, every field that it names must exist, and every entry of the knowledge that it
cites must be one that it was shown. A statement that fails is dropped and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from armillary.errors import InputError
from armillary.files import parse_json

from ..diagnosis.finding import Evidence, Finding, Fragment, as_text, plain
from ..diagnosis.labels import LABELS, MEANING
from ..knowledge.entries import Entry
from .model import Model, ModelError

TOLERANCE = 0.01
#: Statements that one answer may hold.
MOST_STATEMENTS = 32
#: Numbers of one text that are looked up.
MOST_NUMBERS = 5_000
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?")
_UNITS = (1.0, 100.0, 1 / 1024, 1 / 2**20, 1 / 2**30, 1e-3, 1e-6, 1e-9, 1e3)


@dataclass(frozen=True)
class Judgement:
    """What a model said of one fragment; no findings (None) where it could not be asked."""

    findings: tuple[Finding, ...] | None
    unsupported: int
    tokens: int
    note: str = ""


def judged_by_model(model: Model, fragment: Fragment, context: Fragment, entries: Sequence[Entry]) -> Judgement:
    """A model's findings about a fragment, each of which rests on numbers that are there."""
    try:
        said = model.complete(prompt(fragment, context, entries))
    except ModelError as error:
        return Judgement(None, 0, 0, f"The rules judged instead: {error}.")
    statements = parsed(said.text)
    if statements is None:
        return Judgement(None, 0, said.tokens, "The rules judged instead: the model's answer is no JSON.")
    found, dropped = [], max(0, len(statements) - MOST_STATEMENTS)
    for statement in statements[:MOST_STATEMENTS]:
        one = checked(statement, fragment, context, entries)
        if one is None:
            dropped += 1
        else:
            found.append(one)
    return Judgement(tuple(found), dropped, said.tokens)


def confirmed(model: Model, fragment: Fragment, entries: Sequence[Entry]) -> tuple[list[Entry], int]:
    """(the entries of which the model says that they apply to a fragment, tokens); asked one by one, and none where it fails."""
    kept, tokens = [], 0
    for one in entries:
        asked = (
            f"Figures of one fragment of a Darshan log: {as_text(fragment.as_json()).decode()}\n"
            f"Advice: {one.title}: {one.text}\nDoes this advice apply to these figures? Answer yes or no.\n"
        )
        try:
            said = model.complete(asked)
        except ModelError:
            break
        tokens += said.tokens
        if said.text.strip().lower().startswith("yes"):
            kept.append(one)
    return kept, tokens


def prompt(fragment: Fragment, context: Fragment, entries: Sequence[Entry]) -> str:
    """The question about one fragment."""
    labels = "\n".join(f"- {name}: {MEANING[name]}" for name in LABELS)
    knowledge = "\n".join(f"- [{one.id}] {one.title}: {one.text}" for one in entries)
    return (
        "You examine the I/O of a parallel job. Below are figures of the job and of one fragment of its Darshan log, and what is known.\n"
        f"Job: {as_text(context.as_json()).decode()}\nFragment: {as_text(fragment.as_json()).decode()}\n"
        f"Knowledge:\n{knowledge or '- nothing'}\n"
        f"Possible labels:\n{labels}\n"
        "Answer with a JSON list only. Each element has: label; severity (0 to 1: the share of the I/O time that it touches); confidence "
        "(0 to 1); text (one sentence); evidence (a list of {field, value} with "
        "fields of the fragment); knowledge (a list of the ids above "
        "that say what to do). Use no number that is not in the fragment. Answer [] if the fragment shows no fault.\n"
    )


def parsed(text: str) -> list[Any] | None:
    """The JSON list in an answer, which may stand in a code block; None where there is none."""
    begin, end = text.find("["), text.rfind("]")
    if begin < 0 or end < begin:
        return None
    try:
        value = parse_json(text[begin : end + 1], "answer")
    except InputError:
        return None
    return value if isinstance(value, list) else None


def checked(statement: Any, fragment: Fragment, context: Fragment, entries: Sequence[Entry]) -> Finding | None:
    """A statement as a finding, or None where a number or a source of it is not there."""
    if not isinstance(statement, dict) or statement.get("label") not in LABELS:
        return None
    text, evidence, cited = statement.get("text", ""), statement.get("evidence"), statement.get("knowledge", [])
    if not isinstance(text, str) or len(text) > 2_000 or not isinstance(evidence, list) or not evidence or not isinstance(cited, list):
        return None
    shown = []
    for one in evidence[:8]:
        piece = _evidence(one, fragment)
        if piece is None:
            return None
        shown.append(piece)
    known = {one.id: one for one in entries}
    if not all(isinstance(name, str) and name in known for name in cited):
        return None
    numbers = [*_numbers(fragment), *_numbers(context), *(n for name in cited for n in numbers_in(known[name].text))]
    if not all(_there(number, numbers) for number in numbers_in(text)):
        return None
    severity, confidence = (_share(statement.get(name)) for name in ("severity", "confidence"))
    if severity is None or confidence is None:
        return None
    files = tuple(str(row["file"]) for row in fragment.top if "file" in row)
    ranks, targets = (
        tuple(dict.fromkeys(int(piece.value) for piece in shown if piece.field.endswith(end))) for end in ("_rank", "_target")
    )  # fmt: skip
    return Finding(
        str(statement["label"]), severity, confidence, tuple(shown), plain(text, 2_000), files, ranks, targets,
        knowledge=tuple(dict.fromkeys(cited))[:3],
    )  # fmt: skip


def _evidence(one: Any, fragment: Fragment) -> Evidence | None:
    if not isinstance(one, dict) or not isinstance(one.get("field"), str):
        return None
    name = one["field"].rpartition(":")[2] if one["field"].startswith(f"{fragment.key}:") else one["field"]
    value, real = one.get("value"), fragment.fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isinstance(real, int | float) or not near(value, float(real)):
        return None
    return Evidence(fragment.key, name, float(real))


def near(said: float, real: float) -> bool:
    """Whether a number is the other within 1 %."""
    return abs(said - real) <= TOLERANCE * abs(real)


def _share(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        return None
    return float(value)


def _numbers(fragment: Fragment) -> list[float]:
    rows: Iterable[Any] = (fragment.fields, *fragment.top)
    found = []
    for row in rows:
        for value in row.values():
            found += [float(value)] if isinstance(value, int | float) else numbers_in(str(value))
    return found


def numbers_in(text: str) -> list[float]:
    """The numbers of a text."""
    return [float(one.replace(",", "")) for one in _NUMBER.findall(text)[:MOST_NUMBERS]]


def _there(number: float, known: Sequence[float]) -> bool:
    """Whether a number is one of the known ones, as it stands, as a percentage, or in another unit."""
    return any(near(number, value * unit) for value in known for unit in _UNITS)
