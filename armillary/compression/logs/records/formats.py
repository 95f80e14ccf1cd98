"""The formats of logs: which byte separates the fields of a line, how quotes and brackets protect it, and where the names stand.

Every grammar here reads a field without looking at its place: a field has the same bytes wherever in the line it stands. So a line that
fits still fits with its fields in another order, a line that does not fit is left alone, and the inverse needs no list of such lines.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line, unknown
from armillary.files import open_file

from . import NAMES
from .split import fields_per_line

#: How many bytes of a file decide what it is.
HEAD = 1 << 18
PLAIN, QUOTED, BRACKETS, PAIRS, JSON = range(5)


@dataclass(frozen=True)
class Format:
    """A delimited log: the grammar of its fields, the bytes between two of them, how many there are, and whether `#` opens a comment.

    `names` are the fields' names where the log gives them.
    """

    name: str
    grammar: int
    separator: str
    fields: int
    comments: bool = False
    names: tuple[str, ...] = ()

    @property
    def braces(self) -> int:
        """Bytes before the first and after the last field."""
        return 1 if self.grammar == JSON else 0

    @property
    def code(self) -> tuple[int, int, int, int]:
        """The arguments of the kernels: grammar, separator byte, separator length, and whether # opens a comment."""
        return self.grammar, ord(self.separator[0]), len(self.separator), int(self.comments)

    def to_json(self) -> dict[str, Any]:
        """Returns the format as a sidecar holds it."""
        return {**asdict(self), "names": list(self.names)}

    @classmethod
    def from_json(cls, found: Any, where: str) -> Format:
        """Returns a format that a sidecar holds, checked."""
        expected = {"name": str, "grammar": int, "separator": str, "fields": int, "comments": bool, "names": list}
        if not isinstance(found, dict) or set(found) != set(expected) or not all(type(found[k]) is t for k, t in expected.items()):
            raise InputError(f"format: found {one_line(str(found), 80)}; expected {', '.join(expected)}", where=where)
        made = cls(**{**found, "names": tuple(str(name) for name in found["names"])})
        legal = 0 <= made.grammar <= JSON and made.separator in _SEPARATORS[made.grammar] and 1 <= made.fields <= MOST_FIELDS
        if not legal:
            raise InputError(
                f"format: found {one_line(str(found), 80)}; expected a known grammar, its separator and 1 to {MOST_FIELDS} fields",
                where=where,
            )
        return made


MOST_FIELDS = 1000
_SEPARATORS = {PLAIN: tuple("\t,;| "), QUOTED: tuple("\t,;| "), BRACKETS: (" ",), PAIRS: (" ",), JSON: (",", ", ")}


_NETFLOW = re.compile(rb"(?i)^(ts|date|firstseen|first_switched|start)\b.*\b(sa|src|srcip|srcaddr|ipv4_src_addr)", re.ASCII)
_COMBINED = re.compile(rb'^\S+ \S+ \S+ \[[^\]]+\] "')
_PAIR = re.compile(rb"(?:^|\s)[A-Za-z_][\w.\-]*=")


def detect(source: bytes | Path | str, name: str = "auto", *, where: str | None = None) -> Format | None:
    """Returns the format of a log, from its first lines; None for free text. `name` overrides what it looks like.

    `where` names the file of a log that was read already.
    """
    if name not in NAMES:
        raise unknown("format", name, NAMES)
    where = str(source) if not isinstance(source, bytes) else where
    head = _head(source)
    if name == "lines":
        return None
    lines = [line.rstrip(b"\r") for line in head.split(b"\n")]
    if len(lines) > 1 and len(head) >= HEAD:
        lines.pop()
    lines = [line for line in lines if line]
    if not lines:
        raise InputError("found no line; expected a log", where=where)
    if name == "auto":
        name = _looks_like(lines)
    if name == "lines":
        return None
    return _with_count(name, lines, where)


def _head(source: bytes | Path | str) -> bytes:
    if isinstance(source, bytes):
        return source[:HEAD]
    with open_file(source, limit=None, unpack=False) as file:
        return file.read(HEAD)


def _looks_like(lines: list[bytes]) -> str:
    heads = lines[:50]
    if any(line.startswith((b"#fields\t", b"#separator")) for line in heads):
        return "zeek"
    if any(line.startswith(b"#Fields:") for line in heads):
        return "w3c"
    body = [line for line in lines if not line.startswith(b"#")][:200] or lines[:200]

    def most(fits: Any) -> bool:
        return sum(map(bool, map(fits, body))) > 0.8 * len(body)

    if most(lambda line: line.startswith(b"{") and line.endswith(b"}") and b":" in line):
        return "jsonl"
    if most(_COMBINED.match):
        return "combined"
    if most(lambda line: len(_PAIR.findall(line)) >= 5 and len(_PAIR.findall(line)) > 0.5 * len(line.split())):
        return "key-value"
    for candidate in ("tsv", "csv"):
        for separator in _DELIMITERS[candidate]:
            counts = [line.count(separator.encode()) for line in body]
            usual = max(set(counts), key=counts.count)
            if usual >= 2 and counts.count(usual) > 0.8 * len(counts):
                return "netflow" if candidate == "csv" and _NETFLOW.match(lines[0]) else candidate
    return "lines"


_DELIMITERS = {"tsv": "\t", "csv": ",;|", "netflow": ",;|"}


def _with_count(name: str, lines: list[bytes], where: str | None) -> Format:
    grammar, separators, comments = {
        "zeek": (PLAIN, "\t", True), "csv": (QUOTED, ",;|", False), "tsv": (QUOTED, "\t", False), "netflow": (QUOTED, ",;|", False),
        "w3c": (BRACKETS, " ", True), "combined": (BRACKETS, " ", False),
        "key-value": (PAIRS, " ", False), "jsonl": (JSON, (", ", ","), False),
    }[name]  # fmt: skip
    buffer = np.frombuffer(b"\n".join(lines) + b"\n", np.uint8)
    best, count = None, 0
    for separator in separators:
        made = Format(name, grammar, separator, 1, comments)
        counts = fields_per_line(buffer, *made.code)
        counts = counts[counts > 0]
        if len(counts):
            usual = int(np.bincount(counts).argmax())
            weight = int((counts == usual).sum()) * (usual > 1)
            if weight > count:
                best, count = Format(name, grammar, separator, usual, comments), weight
    if best is None:
        raise InputError(
            f"{name}: no line of the first {len(lines)} has two fields; the first is {one_line(repr(lines[0]), 60)}", where=where
        )
    if best.fields > MOST_FIELDS:
        raise InputError(f"found {best.fields} fields per line; expected at most {MOST_FIELDS}", where=where)
    return Format(best.name, best.grammar, best.separator, best.fields, best.comments, _names(best, lines))


def _names(made: Format, lines: list[bytes]) -> tuple[str, ...]:
    text = [line.decode("utf-8", "replace") for line in lines[:50]]
    found: list[str] = []
    if made.name == "zeek":
        found = next((line.split("\t")[1:] for line in text if line.startswith("#fields\t")), [])
    elif made.name == "w3c":
        found = next((line.split(" ")[1:] for line in text if line.startswith("#Fields:")), [])
    elif made.name == "key-value":
        usual = next((line for line in text if line.count("=") >= made.fields), "")
        found = [word.partition("=")[0] for word in re.findall(r'(?:[^\s"]|"[^"]*")+', usual)]
    elif made.name == "jsonl":
        found = re.findall(r'"([^"]*)"\s*:', text[0])
    elif made.name in ("csv", "tsv", "netflow"):
        row = [cell.strip('"') for cell in text[0].split(made.separator)]
        if len(set(row)) == len(row) and all(cell and not re.match(r"[-+\d.]", cell) for cell in row):
            found = row
    elif made.name == "combined":
        found = ["host", "ident", "user", "time", "request", "status", "bytes", "referer", "agent"]
        found += [f"field{i}" for i in range(9, made.fields)]
    return tuple(found) if len(found) == made.fields else ()
