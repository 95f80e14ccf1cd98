"""Reflecting walls: where the box ends, the halo mirrors the inside.

A row of the table is (field, axis, index written, index read, first and last index + 1 along the wall, sign); rows follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .block import FIELDS, HALO, Block


def mirrors(block: Block, fields: Sequence[str], depth: int) -> np.ndarray[Any, Any]:
    """Return the table of an exchange. Rows below and above come first, so that columns mirror their corners too."""
    rows = []
    cells = (block.rows, block.columns)
    for number, name in enumerate(fields):
        field = FIELDS[name]
        for axis in (0, 1):
            skip, n = field.mirrors(axis), cells[axis]
            last = HALO + n - 1 + field.extra[axis]
            across = 1 - axis
            span = (HALO - depth, HALO + cells[across] + field.extra[across] + depth)
            for m in range(depth):
                if block.walls[2 * axis]:
                    rows.append([number, axis, HALO - 1 - m, HALO + m + skip[0], *span, field.sign[axis]])
                if block.walls[2 * axis + 1]:
                    rows.append([number, axis, last + 1 + m, last - m - skip[1], *span, field.sign[axis]])
    return np.array(rows, np.int64).reshape(-1, 7)
