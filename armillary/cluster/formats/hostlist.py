"""Host lists as Slurm writes them: `n[001-128,130],gpu[1-4]-ib,rack[0-3]n[0-9]`.

A bracket stands for each of its numbers, padded with zeros like the first; several brackets multiply. The hosts of a list are counted
before any are made, so `n[1-999999999]` costs nothing but an error.
"""

from __future__ import annotations

import math
import re

from armillary.errors import InputError, one_line

MOST_HOSTS = 1_000_000
#: The most ranges inside one bracket, and the most characters of one list.
MOST_RANGES = 100_000
MOST_TEXT = 4 << 20

_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_NAME = re.compile(r"[A-Za-z0-9_.\-%]*")

#: One part of a name: fixed text, or the ranges (first, last, digits) of one bracket.
Part = str | tuple[tuple[int, int, int], ...]


def count(text: str, where: str = "host list") -> int:
    """The number of hosts that the list names (one named twice counts twice); more than 1,000,000, or a malformed list, raise an
    `InputError`.
    """
    return sum(_size(parts) for parts in _parse(text, where))


def expand(text: str, where: str = "host list") -> list[str]:
    """The distinct hosts, in the order in which the list names them."""
    names: list[str] = []
    for parts in _parse(text, where):
        made = [""]
        for part in parts:
            endings = [part] if isinstance(part, str) else _numbers(part)
            made = [start + end for start in made for end in endings]
        names += made
    return list(dict.fromkeys(names))


def _numbers(ranges: tuple[tuple[int, int, int], ...]) -> list[str]:
    found: list[str] = []
    for first, last, digits in ranges:
        numbers = map(str, range(first, last + 1))
        # Later numbers are never shorter than the first, so padding is needed only if the first has leading zeros.
        found += numbers if len(str(first)) == digits else (number.zfill(digits) for number in numbers)
    return found


def _size(parts: list[Part]) -> int:
    return math.prod(1 if isinstance(part, str) else sum(last - first + 1 for first, last, _ in part) for part in parts)


def _parse(text: str, where: str) -> list[list[Part]]:
    if len(text) > MOST_TEXT:
        raise InputError(f"{len(text):,} characters; expected at most {MOST_TEXT:,}", where=where)
    hosts: list[list[Part]] = []
    total = 0
    for name in _names(text, where):
        parts = _parts(name, where)
        total += _size(parts)
        if total > MOST_HOSTS:
            raise InputError(f'"{one_line(name, 60)}" makes {total:,} hosts; expected at most {MOST_HOSTS:,}', where=where)
        hosts.append(parts)
    return hosts


def _names(text: str, where: str) -> list[str]:
    """Splits at the commas outside brackets."""
    names, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and depth == 0:
            names.append(text[start:position])
            start = position + 1
        if not 0 <= depth <= 1:
            raise InputError(f'"{one_line(text, 60)}": brackets do not match', where=where)
    if depth:
        raise InputError(f'"{one_line(text, 60)}": a bracket is not closed', where=where)
    names.append(text[start:])
    if len(names) > MOST_HOSTS:
        raise InputError(f"{len(names):,} names; expected at most {MOST_HOSTS:,}", where=where)
    return [name.strip() for name in names if name.strip()]


def _parts(name: str, where: str) -> list[Part]:
    pieces = re.split(r"\[([^\]]*)\]", name)
    if len(pieces) > 17:
        raise InputError(f'"{one_line(name, 60)}": more than 8 brackets in one name', where=where)
    parts: list[Part] = []
    for position, piece in enumerate(pieces):
        if position % 2 == 0:
            if not _NAME.fullmatch(piece):
                raise InputError(f'"{one_line(name, 60)}": expected letters, digits, ".", "_" or "-" and numbers in brackets', where=where)
            if piece:
                parts.append(piece)
        else:
            parts.append(_ranges(piece, name, where))
    return parts


def _ranges(piece: str, name: str, where: str) -> tuple[tuple[int, int, int], ...]:
    texts = piece.split(",")
    if len(texts) > MOST_RANGES:
        raise InputError(f'"{one_line(name, 60)}": {len(texts):,} ranges; expected at most {MOST_RANGES:,}', where=where)
    ranges = []
    for text in texts:
        match = _RANGE.fullmatch(text.strip())
        if not match:
            raise InputError(
                f'"{one_line(name, 60)}": found "{one_line(text, 30)}"; expected a number or a range such as 001-128', where=where
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise InputError(f'"{one_line(name, 60)}": the range {text.strip()} runs backwards', where=where)
        ranges.append((first, last, len(match[1])))
    return tuple(ranges)
