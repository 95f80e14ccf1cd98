"""The blocks of a rank's share of a weight: whole ones as rectangles, and the fragments of those that a cut went through.

A share is a contiguous range of the flattened weight. Its whole strips (a strip is one row of blocks) form a matrix that divides into at
most four regions of equal blocks, since the last row and column of blocks may be smaller. What remains at either end lies inside one strip
each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..layouts.bucket import Piece
from ..ragged.granularity import Weight


@dataclass(frozen=True)
class Region:
    """Equal blocks: rows [top, bottom) and columns [left, right) of the whole strips, in blocks of `high` × `wide`."""

    top: int
    bottom: int
    left: int
    right: int
    high: int
    wide: int

    @property
    def blocks(self) -> tuple[int, int]:
        """Rows and columns of blocks."""
        return (self.bottom - self.top) // self.high, (self.right - self.left) // self.wide

    def of(self, matrix: Tensor) -> Tensor:
        """The region of a matrix as [rows of blocks, high, columns of blocks, wide], a view."""
        cut = matrix[self.top : self.bottom, self.left : self.right]
        down, across = self.blocks
        return cut.view(down, self.high, across, self.wide)


@dataclass(frozen=True)
class Fragment:
    """A part of one strip: the flat range of the share [start, stop), the number of the strip, and the block of each element in it."""

    start: int
    stop: int
    strip: int
    #: None where the strip is one block.
    block: Tensor | None


def fragments(weight: Weight, piece: Piece) -> tuple[list[Fragment], int, int]:
    """The fragments of a share, and the flat range [start, stop) of its whole strips, both relative to the share."""
    grain = weight.grain
    first = -(-piece.start // grain) * grain
    last = piece.stop if piece.stop == weight.size else piece.stop // grain * grain
    if last < first:
        return [_fragment(weight, piece, piece.start, piece.stop)], 0, 0
    found = []
    if piece.start < first:
        found.append(_fragment(weight, piece, piece.start, first))
    if last < piece.stop:
        found.append(_fragment(weight, piece, last, piece.stop))
    return found, first - piece.start, last - piece.start


def _fragment(weight: Weight, piece: Piece, start: int, stop: int) -> Fragment:
    wide = weight.block_shape[1]
    block = None if wide >= weight.columns else torch.arange(start, stop) % weight.columns // wide
    return Fragment(start - piece.start, stop - piece.start, start // weight.grain, block)


def regions(rows: int, columns: int, high: int, wide: int) -> Iterator[Region]:
    """The regions of equal blocks of a matrix."""
    for top, bottom, h in ((0, rows // high * high, high), (rows // high * high, rows, rows % high)):
        for left, right, w in ((0, columns // wide * wide, wide), (columns // wide * wide, columns, columns % wide)):
            if bottom > top and right > left:
                yield Region(top, bottom, left, right, h, w)
