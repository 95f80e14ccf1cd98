"""Writes the pages that the site is built from: those in docs/ with their generated parts, and those made from code and records.

    python docs/generator                  # into build/docs
    zensical build --strict                # the site, into site/

A line `<!-- armillary:WHAT ARENA -->` in a page stands for something generated: `verdicts` and `plot` of an arena's
record, the `questions` of all arenas, an `example` file, the `times` to an answer.
"""

from __future__ import annotations

import re
import shutil
import sys
import warnings
from pathlib import Path

import catalogue as catalogue_pages
import recorded

from armillary import catalogue, records
from armillary.arena import Arena
from armillary.study.report.record_plot import dot_plot

DOCS = Path(__file__).parents[1]
TARGET = DOCS.parent / "build" / "docs"
MARK = re.compile(r"^<!-- armillary:([a-z-]+)(?: (\S+))? -->$", re.MULTILINE)


def main() -> int:
    """Writes all pages; a marker that names nothing is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arenas = {path: arena for path, arena in catalogue.arenas().items() if arena.package.startswith("armillary.")}
    shutil.rmtree(TARGET, ignore_errors=True)
    shutil.copytree(DOCS, TARGET, ignore=shutil.ignore_patterns("generator", "__pycache__"))
    texts = {page: page.read_text(encoding="utf-8") for page in sorted(TARGET.glob("*.md"))}
    homes = {m[2]: page.name for page, text in texts.items() for m in MARK.finditer(text) if m[1] == "verdicts"}
    faults = []
    for page, text in texts.items():
        try:
            page.write_text(MARK.sub(lambda m: _generated(m[1], m[2], arenas, homes), text), encoding="utf-8")
        except KeyError as error:
            faults.append(f"{page.name}: nothing is known as {error}")
    for name, text in {**catalogue_pages.pages(arenas), "report-card.md": recorded.report_card(arenas, records.records())}.items():
        file = TARGET / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for fault in faults:
        sys.stderr.write(f"{fault}\n")
    return 1 if faults else 0


def _generated(what: str, path: str | None, arenas: dict[str, Arena], homes: dict[str, str]) -> str:
    known = records.records()
    if what == "questions":
        return recorded.questions(arenas, known, homes)
    if what == "times":
        return recorded.times(DOCS / "time_to_answer.json")
    if what == "example":
        return f"```python title=\"{path}\"\n{(DOCS.parent / 'examples' / (path or '')).read_text(encoding='utf-8')}```"
    arena = arenas[path or ""]
    if what == "verdicts":
        return recorded.verdicts(arena, known.get(arena.path))
    if what == "plot":
        record = known.get(arena.path)
        return dot_plot(record) if record else ""
    raise KeyError(what)


if __name__ == "__main__":
    raise SystemExit(main())
