"""The catalogue: one page per arena, made from the arenas themselves, and their index."""

from __future__ import annotations

from typing import Any

from armillary import catalogue, describe
from armillary.arena import Arena


def pages(arenas: dict[str, Arena]) -> dict[str, str]:
    """Path of each page to its Markdown."""
    made = {f"catalogue/{path}.md": _page(arena) for path, arena in arenas.items()}
    return {"catalogue/index.md": _index(arenas), **made}


def _index(arenas: dict[str, Any]) -> str:
    lines = ["# Catalogue", "", "Every arena and technique, made from the code itself; `armillary show NAME` prints the same.", ""]
    lines += ["| arena | question | techniques | published systems |", "|---|---|---|---|"]
    for path, arena in arenas.items():
        published = ", ".join(f"`{name}`" for name in arena.papers) or "–"
        lines.append(f"| [{path}]({path}.md) | {_cell(arena.question)} | {len(arena.techniques)} | {published} |")
    lines += ["", "## Papers", "", "| technique | paper | arena |", "|---|---|---|"]
    for path, arena in arenas.items():
        for name, key in arena.papers.items():
            paper = catalogue.papers()[key]
            lines.append(f"| `{name}` | {_cell(paper.title)}. {_cell(paper.source)}. {_cell(paper.authors)} | [{path}]({path}.md) |")
    return "\n".join(lines) + "\n"


def _page(arena: Any) -> str:
    facts = describe.arena(arena)
    lines = [f"# {arena.path}", "", f"**{arena.question}**", "", "## Metrics", ""]
    lines += ["| metric | unit | better | how it came to be | what it is |", "|---|---|---|---|---|"]
    for m in facts["metrics"]:
        lines.append(f"| `{m['name']}` | {m['unit'] or '–'} | {m['better'] or '–'} | {m['kind']} | {_cell(m['about'])} |")
    lines += ["", "## Built-in cases", "", ", ".join(f"`{name}`" for name in facts["cases"]), ""]
    if facts["options"]:
        lines += ["## Your own file", "", facts["reads"], "", *_parameters(facts["options"], "option")]
    if facts["constants"]:
        lines += ["## Constants", "", "| name | value | unit | source |", "|---|---|---|---|"]
        lines += [f"| {c['name']} | {c['value']} | {c['unit']} | {_cell(c['source'])} |" for c in facts["constants"]]
        lines.append("")
    lines += ["## Techniques", ""]
    for name in arena.techniques:
        lines += _technique(describe.technique(arena, name))
    return "\n".join(lines) + "\n"


def _technique(facts: dict[str, Any]) -> list[str]:
    lines = [f"### {facts['name']}", "", facts["about"], ""]
    if facts["oracle"]:
        lines += ["*It sees the future: a bound, not a competitor.*", ""]
    if facts["claims"]:
        lines += ["Claims:", ""]
        for number, claim in enumerate(facts["claims"], start=1):
            why = f" *{claim['why']}*" if claim["why"] else ""
            lines.append(f"{number}. {claim['says']}. Judged as: {claim['judged']}.{why}")
        lines.append("")
    if facts["parameters"]:
        lines += _parameters(facts["parameters"], "parameter")
    return [*lines, "```console", f"$ {facts['compare']}", "```", ""]


def _parameters(rows: list[dict[str, Any]], what: str) -> list[str]:
    cells = [(p["name"], _cell(repr(p["default"])), _cell(p["about"]), _cell(p["legal"] or p["type"])) for p in rows]
    lines = [f"| `{name}` | `{default}` | {about} | {legal} |" for name, default, about, legal in cells]
    return [f"| {what} | default | meaning | legal values |", "|---|---|---|---|", *lines, ""]


def _cell(text: str) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
