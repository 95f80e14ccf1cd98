"""The way back that every Lorenzo pipeline shares: residuals with gaps, outliers into the gaps, prefix sums along each axis, x' = 2ε·q."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton

from armillary.errors import InputError

from ..pipeline.container import Section
from . import decode_kernels as decode
from .chunks import Grid
from .quantise_kernels import EXACT

_ROW, DEPTH, WIDTH = 4096, 32, 64
INTEGER = {4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Cut:
    """Where prediction starts anew: pieces of `piece` values within items of `item` values, each in tiles of its own."""

    item: int
    piece: int

    @property
    def piece_tiles(self) -> int:
        """Tiles of a whole piece."""
        return -(-self.piece // 2048)

    @property
    def pieces(self) -> int:
        """Pieces of an item."""
        return -(-self.item // self.piece)

    @property
    def item_tiles(self) -> int:
        """Tiles of an item."""
        full, rest = divmod(self.item, self.piece)
        return full * self.piece_tiles + -(-rest // 2048)

    @property
    def facts(self) -> tuple[int, int, int, int]:
        """What `spot` takes."""
        return self.item_tiles, self.piece_tiles, self.item, self.piece


class Residuals:
    """A chunk's residuals on their way to values; sections were held against their checksums, and here against each other."""

    def __init__(self, grid: Grid, cut: Cut, out: Any, radius: int, where: str | None) -> None:
        self.grid, self.cut, self.out, self.radius, self.where = grid, cut, out, radius, where
        self.tiles = grid.size // cut.item * cut.item_tiles

    def take(self, outliers: tuple[Section, Any], places: tuple[Section, Any], raw: tuple[Section, Any], eps: float, wide: bool) -> None:
        """Takes note of what are no codes, and gets memory."""
        size = 8 if wide else 4
        if outliers[0].dtype.itemsize != size:
            raise InputError(f"outliers: found {outliers[0].dtype}; expected {8 * size} bits", where=self.where)
        if places[0].size // 4 * self.out.element_size() != raw[0].size:
            raise InputError(f"raw values: found {places[0].size // 4} places for {raw[0].size} bytes", where=self.where)
        self.outliers, self.places, self.raw = outliers[1].view(INTEGER[size]), places[1], raw[1].view(self.out.dtype)
        self.width = torch.full((1,), 2.0 * eps, dtype=torch.float64, device=self.out.device)
        # Sums may lie where the values will: each is read before it is written.
        same = self.out.element_size() == size
        self.sums = self.out.view(INTEGER[size]) if same else torch.empty(self.grid.size, dtype=INTEGER[size], device=self.out.device)
        self.zeros = torch.empty(self.tiles, dtype=torch.int32, device=self.out.device)

    def gaps(self) -> Any:
        """Returns the number of zero codes and the last place of a violator, which the host checks once `sums` and `zeros` are filled."""
        self.ends = self.zeros.cumsum(0)
        self.places = self.places.to(torch.int64) & 0xFFFFFFFF
        last = self.places.max() if self.places.numel() else torch.zeros_like(self.ends[-1])
        return torch.stack([self.ends[-1], last])

    def check(self, found: np.ndarray) -> None:
        """Refuses outliers and violators that have no place."""
        zeros, last = (int(n) for n in found)
        if zeros != self.outliers.numel():
            raise InputError(f"outliers: found {self.outliers.numel()}; expected {zeros}, one for each zero code", where=self.where)
        if last >= self.grid.size:
            raise InputError(f"raw values: found a place {last}; expected places below {self.grid.size}", where=self.where)

    def values(self) -> None:
        """Puts in the outliers, sums along each axis, and puts in the violators' own bits."""
        grid, sums, cut = self.grid, self.sums, self.cut
        if self.outliers.numel():
            decode.insert[(self.tiles,)](sums, self.ends, self.zeros, self.outliers, *cut.facts, self.radius, num_warps=8)
        batch, z, y, x = grid.shape
        if grid.dimensions == 1 and cut.piece < x:
            for start in range(0, grid.size, cut.item):
                self._along(slice(start, start + cut.item), cut.pieces, cut.piece)
        else:
            self._along(slice(0, grid.size), batch * z * y, x)
        if grid.dimensions > 1:
            self._down(batch * z, y, cut.piece // x if grid.dimensions == 2 else y, x, grid.dimensions == 2)
        if grid.dimensions > 2:
            self._down(batch, z, cut.piece // (y * x), y * x, True)
        if self.places.numel():
            self.out[self.places] = self.raw

    def _along(self, part: slice, rows: int, x: int) -> None:
        sums, out, size, last = self.sums[part], self.out[part], part.stop - part.start, self.grid.dimensions == 1
        segment = min(_ROW, triton.next_power_of_2(x))
        segments, side = triton.cdiv(x, segment), _ROW // segment
        totals = torch.empty((rows, segments), dtype=sums.dtype, device=sums.device)
        decode.sum_rows[(triton.cdiv(rows, side), segments)](sums, totals, size, rows, x, segments, ROWS=side, SEGMENT=segment)
        if segments > 1 or last:
            # Summed as int64 and cut: sums of int32 wrap around as they do on the host.
            before = (totals.cumsum(1, dtype=torch.int64) - totals).to(sums.dtype)
            decode.finish_rows[(triton.cdiv(size, 1024),)](
                sums, before, out if last else sums, self.width, size, x, segments, SEGMENT=segment, LAST=last, BLOCK=1024, **EXACT
            )

    def _down(self, outer: int, n: int, restart: int, inner: int, last: bool) -> None:
        parts = triton.cdiv(n, restart)
        decode.sum_down[(outer * parts, triton.cdiv(inner, WIDTH))](
            self.sums, self.out if last else self.sums, self.width, n, restart, parts, inner, LAST=last, DEPTH=DEPTH, WIDTH=WIDTH, **EXACT
        )
