"""Makes the catalogue pages from the arenas themselves, whenever the documentation is built."""

from __future__ import annotations

import warnings
from typing import Any

from mkdocs.structure.files import File, Files

from armillary import catalogue, describe


def on_files(files: Files, config: Any) -> Files:
    """Adds one page for each arena of the package, and their index."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arenas = {path: arena for path, arena in catalogue.arenas().items() if arena.package.startswith("armillary.")}
    files.append(File.generated(config, "catalogue/index.md", content=_index(arenas)))
    for path, arena in arenas.items():
        files.append(File.generated(config, f"catalogue/{path}.md", content=_page(arena)))
    return files


def on_nav(nav: Any, config: Any, files: Files) -> Any:
    """Pages of the catalogue are reached through its index."""
    return nav


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
        lines += ["## Options for your own file", "", "| option | default |", "|---|---|"]
        lines += [f"| `--{name}` | `{_cell(repr(default))}` |" for name, default in facts["options"].items()]
        lines.append("")
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
        lines += ["| parameter | default | meaning | legal values |", "|---|---|---|---|"]
        for p in facts["parameters"]:
            lines.append(f"| `{p['name']}` | `{_cell(repr(p['default']))}` | {_cell(p['about'])} | {_cell(p['legal'] or p['type'])} |")
        lines.append("")
    return [*lines, "```console", f"$ {facts['compare']}", "```", ""]


def _cell(text: str) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
