"""The entries of the knowledge: how a mechanism works, what it costs, and what to do about it."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

from armillary.errors import InputError, one_line
from armillary.files import read_bytes

from ..diagnosis.labels import LABELS
from .conditions import Condition, condition

BUILT_IN = Path(__file__).with_name("entries.toml")
FIELDS = {"id", "title", "tags", "when", "text", "references"}
MOST_BYTES, MOST_ENTRIES = 1 << 22, 10_000


@dataclass(frozen=True)
class Entry:
    """One piece of knowledge, the labels that it belongs to, and the condition under which it applies."""

    id: str
    title: str
    tags: tuple[str, ...]
    when: Condition
    text: str
    references: tuple[str, ...] = ()


@functools.cache
def built_in() -> tuple[Entry, ...]:
    """The knowledge that comes with Armillary."""
    return read_knowledge(BUILT_IN)


def read_knowledge(path: Path) -> tuple[Entry, ...]:
    """The entries of a TOML file with `[[entry]]` tables of id, title, tags, when, text and references."""
    where = str(path)
    try:
        document = tomllib.loads(read_bytes(path, limit=MOST_BYTES).decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"cannot be read as TOML ({one_line(str(error), 100)})", where=where) from None
    unknown = sorted(document.keys() - {"version", "entry"})
    if unknown:
        raise InputError(f'found "{one_line(unknown[0], 40)}"; expected version and entry', where=where)
    rows = document.get("entry")
    if not isinstance(rows, list) or not 1 <= len(rows) <= MOST_ENTRIES or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"expected 1 to {MOST_ENTRIES:,} tables [[entry]]", where=where)
    found = [_entry(row, f"{where}: entry {number}") for number, row in enumerate(rows, 1)]
    names = [one.id for one in found]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise InputError(f'found the entry "{one_line(twice, 40)}" twice; expected it once', where=where)
    return tuple(found)


def _entry(row: dict[str, object], where: str) -> Entry:
    unknown = sorted(row.keys() - FIELDS)
    if unknown:
        raise InputError(f'found the field "{one_line(unknown[0], 40)}"; expected {", ".join(sorted(FIELDS))}', where=where)
    for name in ("id", "title", "when", "text"):
        if not isinstance(row.get(name), str) or not row[name]:
            raise InputError(f"{name}: expected some text", where=where)
    for name in ("tags", "references"):
        value = row.get(name, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise InputError(f"{name}: expected a list of texts", where=where)
    tags = tuple(str(one) for one in row.get("tags", []))  # type: ignore[attr-defined]
    wrong = [tag for tag in tags if tag not in LABELS]
    if wrong:
        raise InputError(f'tags: found "{one_line(wrong[0], 40)}"; expected {", ".join(LABELS)}', where=where)
    references = tuple(str(one) for one in row.get("references", []))  # type: ignore[attr-defined]
    return Entry(str(row["id"]), str(row["title"]), tags, condition(str(row["when"]), where), str(row["text"]), references)
