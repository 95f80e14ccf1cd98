"""Reads standard task graphs: a count, and then one line `id time npred pred…` per task; `#` starts a comment."""

from __future__ import annotations

from pathlib import Path

from armillary.errors import InputError
from armillary.files import read_text
from armillary.tasks.formats.listing import MOST_FILE_BYTES, MOST_TASKS, Entry, graph_of, number
from armillary.tasks.graph import Graph


def from_stg(path: str | Path, *, max_tasks: int = MOST_TASKS) -> Graph:
    """The graph of an STG file, with times in seconds. The two empty tasks at its ends are kept."""
    entries: list[Entry] = []
    count: int | None = None
    for line, text in enumerate(read_text(path, limit=MOST_FILE_BYTES).splitlines(), 1):
        words = text.partition("#")[0].split()
        where = f"{path}:{line}"
        if not words:
            continue
        if not all(word.isdecimal() and len(word) < 19 for i, word in enumerate(words) if i != 1):
            raise InputError(f"found {text[:60]!r}; expected whole numbers", where=where)
        if count is None:
            count = int(words[0])
            if len(words) != 1 or count > max_tasks:
                raise InputError(f"found {text[:60]!r}; expected the number of tasks, at most {max_tasks}", where=where)
            continue
        if len(words) < 3 or len(words) != 3 + int(words[2]):
            raise InputError(f"found {len(words)} columns; expected id, time, the number of predecessors, and their ids", where=where)
        entries.append(Entry(words[0], "task", where, words[3:], number(words[1], where)))
    if count is None or len(entries) not in (count, count + 2):
        raise InputError(f"found {len(entries)} tasks; the first line says {count}", where=str(path))
    return graph_of(entries, Path(path).stem, max_tasks)
