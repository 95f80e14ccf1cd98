"""What the records say, as Markdown: verdict tables, the report card over all papers, and the questions of the start page."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from armillary import report_card as card
from armillary.arena import Arena
from armillary.catalogue import Paper
from armillary.records import SYMBOLS, Record
from armillary.report_card import figure, first_of_each_paper, first_sentence
from armillary.study.unit import code_digest


def verdicts(arena: Arena, record: Record | None) -> str:
    """The verdicts on an arena's claims, or a sentence that says there are none yet."""
    if record is None:
        return f"*No study of `{arena.path}` is recorded yet; `armillary reproduce --field {arena.field}` judges its claims.*"
    lines = ["| technique | the paper says | published | ours (95 % interval) | verdict | why |", "|---|---|---|---|---|---|"]
    for v in record.verdicts:
        why = cell(v["reason"]) + (f" ({cell(v['honest'])})" if v["honest"] else "")
        ours = figure(v) + (f", {v['kind']}" if v["kind"] else "")
        lines.append(f"| `{v['technique']}` | {cell(v['says'])} | {cell(v['published'])} | {ours} | {state(v)} | {why} |")
    return "\n".join([*lines, "", origin(arena, record)])


def origin(arena: Arena, record: Record) -> str:
    """Where a record comes from, and whether the code has changed since."""
    units, machine = record.units, record.environment
    where = f"{machine.get('cpu', 'an unknown CPU')}, {machine.get('usable_cores', '?')} cores"
    noisy = f", {units['noisy']} of them on a disturbed machine" if units.get("noisy") else ""
    said = f"Recorded on {record.date} at scale {record.scale}, seed {record.seed}: {units['done']} units on {where}{noisy}."
    old = stale(arena, record)
    return f"*{said}{' The code has changed since: ' + ', '.join(f'`{t}`' for t in old) + '.' if old else ''}*"


def stale(arena: Arena, record: Record) -> list[str]:
    """The judged techniques whose code is not what the record was made with."""
    judged = dict.fromkeys(v["technique"] for v in record.verdicts if v["technique"] in arena.techniques)
    return [t for t in judged if record.techniques.get(t, {}).get("code") != code_digest(arena, t)[:32]]


def report_card(arenas: Mapping[str, Arena], records: Mapping[str, Record]) -> str:
    """Every paper with what became of its claims."""
    lines = [
        "# Report card", "",
        "What became of the claims of every paper, made from the recorded studies.",
        "A click on a heading sorts the table.",
        "[How a verdict is reached](method.md) says what the words mean.", "",
        "| paper | technique | arena | ● held | ◐ in part | ○ not held | – not tried |", "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    details = []
    for line in card.report_card(arenas, records):
        paper, home, name = line.paper, line.arena, line.technique
        if home is None or name is None:
            lines.append(f"| {cell(paper.title)} | to come | `{paper.arena}` | | | | |")
            continue
        link = f"[`{home.path}`](catalogue/{home.path}.md)"
        lines.append(f"| {cell(paper.title)} | [`{name}`](#{_anchor(name)}) | {link} | {' | '.join(map(str, line.counts))} |")
        details += _paper(home, name, paper, line.record)
    return "\n".join([*lines, "", "## Claim by claim", "", *details]) + "\n"


def questions(arenas: Mapping[str, Arena], records: Mapping[str, Record], pages: Mapping[str, str]) -> str:
    """The questions of all arenas by field, each with its recorded answer in one sentence and the marks of its papers."""
    lines: list[str] = []
    for field in dict.fromkeys(arena.field for arena in arenas.values()):
        lines += [f"### {field.capitalize()}", "", "| question | what came out here | papers |", "|---|---|---|"]
        for path, arena in arenas.items():
            if arena.field == field:
                record = records.get(path)
                answer = first_sentence(record.answer) if record else "Not recorded yet."
                marks = "<br>".join(f"`{name}` {_marks(record, name)}" for name in first_of_each_paper(arena))
                lines.append(f"| [{cell(arena.question)}]({pages.get(path, f'catalogue/{path}.md')}) | {cell(answer)} | {marks} |")
        lines.append("")
    return "\n".join(lines)


def state(v: Mapping[str, Any]) -> str:
    """A verdict's state, inside a cell."""
    return cell(card.state(v))


def cell(text: str) -> str:
    """Text that stays inside its cell of a table."""
    return str(text).replace("|", "\\|").replace("\n", " ")


def _paper(home: Arena, name: str, paper: Paper, record: Record | None) -> list[str]:
    lines = [f"### {name} {{ #{_anchor(name)} }}", "", f"{paper.title}. {paper.source}.", ""]
    if record is None:
        return [*lines, "Its claims have not been recorded yet.", ""]
    lines += ["| the paper says | ours | verdict | why |", "|---|---|---|---|"]
    lines += [f"| {cell(v['says'])} | {figure(v)} | {state(v)} | {cell(v['reason'])} |" for v in record.of(name)]
    return [*lines, "", origin(home, record), ""]


def _marks(record: Record | None, name: str) -> str:
    return " ".join(SYMBOLS[v["state"]] for v in record.of(name)) if record else ""


def _anchor(name: str) -> str:
    return "claims-" + re.sub(r"[^a-z0-9]+", "-", name.lower())


def times(file: Path) -> str:
    """How long every arena takes to answer, as `benchmarks/time_to_answer.py` wrote it."""
    measured = json.loads(file.read_text(encoding="utf-8"))
    if not measured:
        return "*Not measured on a quiet machine yet.*"
    lines = ["| arena | cases | units | seconds |", "|---|---:|---:|---:|"]
    for path, found in measured.items():
        few = found["cases"] if found["cases"] == found["of"] else f"{found['cases']} of {found['of']}"
        lines.append(f"| {path} | {few} | {found['units']:,} | {found['seconds']:g} |")
    return "\n".join(lines)
