"""What is known already: one recorded study per arena, as `armillary reproduce … --record` wrote it.

The records stand in `results/` of the repository and inside the installed package. `list`, the tables of the documentation and the
report card are made from them. This side only reads, and imports nothing heavy.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armillary.errors import InputError

ROOT = Path(__file__).parent
#: Counts up when the shape of a record changes.
FORM = 1
MOST_BYTES = 16 * 2**20
HELD, IN_PART, NOT_HELD, NOT_TRIED = "held", "held in part", "not held", "not tried"
SYMBOLS = {HELD: "●", IN_PART: "◐", NOT_HELD: "○", NOT_TRIED: "–"}


@dataclass(frozen=True)
class Record:
    """One arena's recorded study."""

    arena: str
    #: The day it was recorded, as 2026-11-15.
    date: str
    scale: str
    seed: int
    answer: str
    #: Technique to its code digest, parameters, `seconds` (case to the seconds of a unit), `medians` (metric to case to value) and `levels`
    #: (metric to figure, low, high).
    techniques: Mapping[str, Mapping[str, Any]]
    #: Metric to its unit, better and kinds.
    metrics: Mapping[str, Mapping[str, Any]]
    #: Verdicts as `Verdict.json` gives them, without their values by case.
    verdicts: tuple[Mapping[str, Any], ...]
    environment: Mapping[str, Any]
    #: How many units were done, failed, declined and noisy.
    units: Mapping[str, int]

    def of(self, technique: str) -> list[Mapping[str, Any]]:
        """The verdicts on one technique's claims, in their order."""
        return [verdict for verdict in self.verdicts if verdict["technique"] == technique]


def folder() -> Path:
    """Where the records stand: in the installed package, or beside it in a checkout."""
    inside = ROOT / "results"
    return inside if inside.is_dir() else ROOT.parent / "results"


def file_name(arena: str) -> str:
    """The name of an arena's record: `storage-eviction.json`."""
    return f"{arena.replace('/', '-')}.json"


@functools.lru_cache(maxsize=4)
def records(where: Path | None = None) -> dict[str, Record]:
    """Every record there is, by arena."""
    place = folder() if where is None else where
    found = {}
    for file in sorted(place.glob("*.json")) if place.is_dir() else ():
        record = load(file)
        found[record.arena] = record
    return found


def load(file: Path) -> Record:
    """The record in a file."""
    try:
        if not file.is_file():
            raise InputError("expected a record, in a regular file", where=str(file))
        if file.stat().st_size > MOST_BYTES:
            raise InputError(f"found more than {MOST_BYTES >> 20} MiB; expected a record", where=str(file))
        found = json.loads(file.read_bytes())
        if found["form"] != FORM:
            raise InputError(f"found form {found['form']}; expected {FORM}", where=str(file))
        fields = {name: found[name] for name in Record.__dataclass_fields__ if name != "verdicts"}
        return Record(**fields, verdicts=tuple(found["verdicts"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"not a record of Armillary ({type(error).__name__}: {error})", where=str(file)) from None
