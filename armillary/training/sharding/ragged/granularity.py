"""Which parts of a tensor must stay together: the granularity in elements of the flattened (row-major) tensor.

A rule gives a pattern of names and a block. Matrices are cut into blocks; vectors (norms, biases) may be cut anywhere, because optimizers
keep their few numbers in full precision. A tensor of more dimensions is a stack of matrices, the rows of which follow one another.

| block | granularity |
|---|---|
| `1` | 1 element |
| `"row"` | one row |
| `[R, C]` | R rows, which is the smallest contiguous set that holds whole R × C blocks; C = 0 means all columns |
| `"whole"` | one matrix |
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from armillary.errors import InputError, one_line

#: The most elements of a tensor, and the most tensors of one plan, so that offsets stay far below 2⁶³.
MOST_ELEMENTS = 1 << 48
MOST_WEIGHTS = 200_000

Block = int | str | tuple[int, int]
Rule = Mapping[str, Any]


@dataclass(frozen=True)
class Weight:
    """A tensor to shard: its name, its shape, and the block of which none may be cut."""

    name: str
    shape: tuple[int, ...]
    block: Block = 1

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def columns(self) -> int:
        """Elements per row: the last dimension."""
        return self.shape[-1] if self.shape else 1

    @property
    def matrix(self) -> bool:
        """Whether the tensor has rows and columns, and so blocks."""
        return len(self.shape) > 1

    @property
    def block_shape(self) -> tuple[int, int]:
        """Rows and columns of one block, cut down to those of the tensor; (1, 1) where every element may stand alone."""
        if not self.matrix or self.block == 1:
            return 1, 1
        rows = self.size // max(1, self.columns)
        if self.block == "row":
            return 1, self.columns
        if self.block == "whole":
            return self.shape[-2], self.columns
        assert isinstance(self.block, tuple)
        high, wide = self.block
        return min(high, rows), min(wide or self.columns, self.columns)

    @property
    def grain(self) -> int:
        """The granularity in elements: a cut may fall only at a multiple of it."""
        high, wide = self.block_shape
        return 1 if (high, wide) == (1, 1) else high * self.columns


def granularity(shape: Sequence[int], block: Any = 1) -> int:
    """Return the granularity in elements of a tensor of this shape under this block."""
    return Weight("tensor", _shape("tensor", shape), block_of(block, "block")).grain


def block_of(found: Any, where: str) -> Block:
    """Check a block as it stands in a rule: 1, "row", "whole" or [rows, columns]."""
    if found in ("row", "whole"):
        return str(found)
    if isinstance(found, int) and not isinstance(found, bool) and found == 1:
        return 1
    if isinstance(found, list | tuple) and len(found) == 2:
        high, wide = found
        if all(isinstance(x, int) and not isinstance(x, bool) for x in found) and 1 <= high < 1 << 40 and 0 <= wide < 1 << 40:
            return 1 if (high, wide) == (1, 1) else (high, wide)
    raise InputError(f'block: found {one_line(repr(found), 60)}; expected 1, "row", "whole" or [rows, columns]', where=where)


def weights_of(
    shapes: Mapping[str, Sequence[int]], blocks: Iterable[Rule] | Block | Sequence[int] | None = None, *, strict: bool = False,
    where: str = "blocks",
) -> tuple[Weight, ...]:  # fmt: skip
    """Give every tensor its block.

    `blocks` is one block for all tensors, or rules `{"pattern": "*.experts.*", "block": [32, 32]}`; tensors without a rule may be cut
    anywhere, and two rules for one tensor are refused. `strict` also refuses a block that is larger than its tensor.
    """
    if len(shapes) > MOST_WEIGHTS:
        raise InputError(f"found {len(shapes):,} tensors; expected at most {MOST_WEIGHTS:,}", where=where)
    rules = _rules(blocks, where)
    found = []
    for name, shape in shapes.items():
        matching = [(pattern, block) for pattern, block in rules if fnmatch.fnmatchcase(name, pattern)]
        if len(matching) > 1:
            (one, _), (other, _) = matching[:2]
            raise InputError(f'"{name}" matches two rules, "{one}" and "{other}"; expected one', where=where)
        weight = Weight(name, _shape(name, shape), matching[0][1] if matching else 1)
        if strict and weight.matrix and isinstance(weight.block, tuple):
            high, wide = weight.block
            if high > weight.size // weight.columns or wide > weight.columns:
                raise InputError(f'"{name}": found a block of {high} × {wide} in {"×".join(map(str, weight.shape))}', where=where)
        found.append(weight)
    return tuple(found)


def _rules(blocks: Any, where: str) -> list[tuple[str, Block]]:
    if blocks is None:
        return []
    if isinstance(blocks, int | str) or (isinstance(blocks, list | tuple) and blocks and isinstance(blocks[0], int)):
        return [("*", block_of(blocks, where))]
    found = []
    for number, rule in enumerate(blocks, start=1):
        if not isinstance(rule, Mapping) or set(rule) != {"pattern", "block"} or not isinstance(rule.get("pattern"), str):
            raise InputError(f'rule {number}: found {one_line(repr(rule), 60)}; expected a "pattern" and a "block"', where=where)
        found.append((rule["pattern"], block_of(rule["block"], f"{where}, rule {number}")))
    return found


def _shape(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    made = tuple(shape)
    if not all(isinstance(x, int) and not isinstance(x, bool) and 1 <= x <= MOST_ELEMENTS for x in made) or math.prod(made) > MOST_ELEMENTS:
        raise InputError(f'"{one_line(name, 60)}": found shape {one_line(str(made), 60)}; expected sizes from 1 and at most 2⁴⁸ elements')
    return made
