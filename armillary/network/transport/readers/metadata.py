"""Metadata of a stream: which block of which variable stands in which file. DTLMod's text, and JSON."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from armillary.errors import InputError, one_line
from armillary.files import read_text

Block: TypeAlias = tuple[str, tuple[tuple[int, int], ...]]
#: Name, bytes per element, shape, and the blocks of each transaction.
VariableBlocks: TypeAlias = tuple[str, int, tuple[int, ...], dict[int, tuple[Block, ...]]]
_LARGEST = 1 << 28
_VARIABLE = re.compile(r"([0-9]{1,9})\t([^\t]{1,200})\t([0-9]{1,9})\*\{([0-9,]{1,200})\}")
_TRANSACTION = re.compile(r"  Transaction ([0-9]{1,9}):")
_BLOCK = re.compile(r"    (.{1,1000}): \[([0-9:, ]{1,400})\]")


@dataclass(frozen=True)
class Metadata:
    """The variables of one stream."""

    variables: tuple[VariableBlocks, ...]

    def text(self) -> str:
        """DTLMod's form; the ends of ranges are excluded."""
        lines = []
        for name, itemsize, shape, by_transaction in self.variables:
            lines.append(f"{itemsize}\t{name}\t{len(by_transaction)}*{{{','.join(map(str, shape))}}}")
            for number, blocks in by_transaction.items():
                lines.append(f"  Transaction {number}:")
                for path, ranges in blocks:
                    lines.append(f"    {path}: [{', '.join(f'{a}:{b}' for a, b in ranges)}]")
        return "".join(f"{line}\n" for line in lines)

    def json(self) -> str:
        """The same as JSON."""
        found = [
            {
                "name": name,
                "itemsize": itemsize,
                "shape": shape,
                "transactions": {str(n): [{"file": path, "ranges": ranges} for path, ranges in blocks] for n, blocks in numbered.items()},
            }
            for name, itemsize, shape, numbered in self.variables
        ]
        return json.dumps({"variables": found}, indent=1) + "\n"


def read_metadata(path: str | Path) -> Metadata:
    """Reads DTLMod's text."""
    found: list[VariableBlocks] = []
    blocks: list[Block] = []
    growing: dict[tuple[int, int], list[Block]] = {}
    declared: list[tuple[int, int]] = []
    for number, line in enumerate(read_text(path, limit=_LARGEST).splitlines(), 1):
        where = f"{path}:{number}"
        if match := _VARIABLE.fullmatch(line):
            shape = tuple(int(d) for d in match[4].split(",") if d)
            found.append((match[2], int(match[1]), shape, {}))
            declared.append((int(match[3]), number))
            blocks = []
        elif (match := _TRANSACTION.fullmatch(line)) and found:
            if int(match[1]) in found[-1][3]:
                raise InputError(f"found transaction {match[1]} twice; expected it once", where=where)
            blocks = []
            found[-1][3][int(match[1])] = ()
        elif (match := _BLOCK.fullmatch(line)) and found and found[-1][3]:
            ranges = _ranges(match[2], found[-1][2], where)
            blocks.append((match[1], ranges))
            growing[len(found) - 1, next(reversed(found[-1][3]))] = blocks
        elif line.strip():
            raise InputError(f'found "{one_line(line, 60)}"; expected a variable, a transaction or a block', where=where)
    for (name, _, _, by_transaction), (many, number) in zip(found, declared, strict=True):
        if len(by_transaction) != many:
            raise InputError(f"variable {name}: found {len(by_transaction)} transactions; expected {many}", where=f"{path}:{number}")
    return Metadata(tuple((n, i, s, {k: tuple(growing.get((v, k), ())) for k in t}) for v, (n, i, s, t) in enumerate(found)))


def _ranges(text: str, shape: tuple[int, ...], where: str) -> tuple[tuple[int, int], ...]:
    try:
        ranges = tuple((int(a), int(b)) for a, b in (part.split(":") for part in text.split(", ")))
    except ValueError:
        raise InputError(f"found the ranges [{one_line(text, 60)}]; expected start:end for each dimension", where=where) from None
    if len(ranges) != len(shape) or any(not 0 <= a < b <= d for (a, b), d in zip(ranges, shape)):
        raise InputError(f"found the block [{one_line(text, 60)}]; expected it inside {list(shape)}", where=where)
    return ranges
