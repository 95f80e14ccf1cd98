"""CSV and plain text: a table in which the user says what each column is, or one id per line.

The map of columns is written `time=0,id=1,size=2`: a role, and a column by number (from 0) or by its name in the header. Roles:

- `id`: the object; whole numbers from 0 to 2^63-1 when the first thousand look like numbers, text otherwise;
- `key`: the object, always as text;
- `size`: bytes, whole numbers from 0 to 2^40;
- `op`: what is done, in Memcached's words (get, set, delete, …); without it every row is a lookup;
- `time`: checked to be a number and otherwise not used: the order of the rows is the order of the requests.

Text keys are distinguished by two independent seeded 64-bit hashes, 128 bits together: the chance that any two of 10^9 different
keys collide is below 10^-20. The texts themselves are not kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from armillary.errors import InputError, one_line, unknown

from ..workload import MOST_BYTES
from .fields import Fields, seeds
from .requests import OPERATIONS, Requests

ROLES = ("time", "id", "key", "size", "op")
#: Names in a header that say what a column is, when the user does not.
NAMES = {
    "id": ("id", "obj_id", "object_id", "objectid", "object", "obj", "key", "lbn", "lba", "block", "url"),
    "size": ("size", "obj_size", "object_size", "bytes", "size_bytes"),
    "time": ("time", "timestamp", "ts", "time_s", "clock_time"),
}
#: The number of rows from which the reader judges whether ids are numbers.
SAMPLE_ROWS = 1000
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True)
class Table:
    """A delimited table with known roles; `TextFormat` for the reader."""

    #: Column number of each role, in the order of `columns`.
    roles: dict[str, int]
    #: Whether ids are text.
    text: bool
    exactly: int = 0
    _seeds: tuple[np.uint64, np.uint64] = field(default_factory=seeds, repr=False)

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns that have a role."""
        return tuple(dict.fromkeys(self.roles.values()))

    @property
    def words(self) -> int:
        """The number of 64-bit words of a key."""
        return 2 if self.text else 1

    def requests(self, fields: Fields) -> Iterator[Requests]:
        """One request per row."""
        at = {role: self.columns.index(column) for role, column in self.roles.items()}
        if "time" in at:
            fields.check_numbers(at["time"], "time")
        who = "key" if "key" in at else "id"
        second = None
        if self.text:
            fields.check_filled(at[who], who)
            first, second = fields.hashes((at[who],), self._seeds)
        else:
            first = fields.whole_numbers(at[who], who)
        sizes = fields.whole_numbers(at["size"], "size", MOST_BYTES).astype(np.int64) if "size" in at else None
        operations = fields.codes(at["op"], "op", OPERATIONS) if "op" in at else None
        yield Requests(first, second, sizes, operations)


def is_number(word: str) -> bool:
    """Whether a person meant a number; nan and -1 count too, because they are wrong numbers and no names."""
    return _NUMBER.fullmatch(word.strip()) is not None


def parse_roles(columns: str, header: list[str] | None, where: str) -> dict[str, int]:
    """The column number of each role in a map such as `time=0,id=1,size=2` or `id=lbn`."""
    roles: dict[str, int] = {}
    for item in columns.split(","):
        role, equals, place = (part.strip() for part in item.partition("="))
        if not equals or not place:
            raise InputError(f'found columns="{one_line(columns, 80)}"; expected role=column pairs such as time=0,id=1,size=2', where=where)
        if role not in ROLES:
            raise unknown("role of a column", role, ROLES, where=where)
        if role in roles:
            raise InputError(f'found role "{role}" twice in columns="{one_line(columns, 80)}"; expected it once', where=where)
        roles[role] = _column(place, header, where)
    if ("id" in roles) == ("key" in roles):
        raise InputError(f'found columns="{one_line(columns, 80)}"; expected one column as id (or key, for text)', where=where)
    return roles


def _column(place: str, header: list[str] | None, where: str) -> int:
    if place.isascii() and place.isdigit() and len(place) <= 4:
        return int(place)
    if header is None:
        raise InputError(f'found column "{one_line(place, 60)}" and no header; expected a number from 0 to 9999', where=where)
    if place not in header:
        raise unknown("column", place, header, where=where)
    return header.index(place)


def guess_roles(header: list[str] | None, width: int, where: str) -> dict[str, int]:
    """The roles when the user gave none: by well-known names in the header, or the only column."""
    if width == 1:
        return {"id": 0}
    found: dict[str, int] = {}
    lower = [name.lower() for name in header or ()]
    for role, names in NAMES.items():
        at = [lower.index(name) for name in names if name in lower]
        if at:
            found[role] = at[0]
    if "id" not in found:
        seen = f"the header {one_line(','.join(header), 120)}" if header else f"{width} columns and no header"
        raise InputError(f"found {seen}; expected to be told which column is which: columns=time=0,id=1,size=2", where=where)
    return found


def looks_like_header(first: list[str], second: list[str] | None, roles: dict[str, int] | None) -> bool:
    """Whether the first row names columns: it has no number where the second has one, or its one word is a well-known name."""
    places = range(len(first)) if roles is None else [column for role, column in roles.items() if role in ("time", "size", "id")]
    if any(is_number(first[c]) for c in places if c < len(first)):
        return False
    if second is not None and any(is_number(second[c]) for c in places if c < len(second) and c < len(first)):
        return True
    words = first if roles is None else [first[c] for c in roles.values() if c < len(first)]
    return any(word.strip().lower() in names for word in words for names in NAMES.values())


def ids_are_text(fields: Fields, column: int) -> bool:
    """Whether any of the first ids is neither a number nor meant as one."""
    return any(not is_number(fields.word(row, column)) for row in range(min(len(fields), SAMPLE_ROWS)))
