"""Sources as text: those of the published functions, and the corpus on which the inspector is judged. They are never executed."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from armillary.scheduling.offloading.runtime.controller import Mode


@dataclass(frozen=True)
class Labelled:
    """A source, or a project of several files, with the mode that a person gives it."""

    name: str
    mode: Mode
    files: dict[str, str]
    entry: str


def _table(name: str) -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__ or __name__) / name).read_text(encoding="utf-8"))


@functools.cache
def published() -> dict[str, tuple[dict[str, str], str]]:
    """The published functions by name: their files, and the one at which they begin."""
    return {name: ({"func.py": source}, "func.py") for name, source in _table("published.toml").items()}


@functools.cache
def corpus() -> tuple[Labelled, ...]:
    """The labelled sources."""
    found = []
    for name, entry in _table("corpus.toml").items():
        files = entry["files"] if "files" in entry else {"func.py": entry["source"]}
        found.append(Labelled(name, Mode(entry["mode"]), files, entry.get("entry", "func.py")))
    return tuple(found)
