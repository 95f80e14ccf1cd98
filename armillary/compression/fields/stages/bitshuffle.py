"""The stages `bitshuffle` and `zero-blocks` are the encoder of FZ-GPU (HPDC 2023).

They put bits of equal weight together and then store nothing for blocks of zeros.

Small residuals have zeros in their upper bits. Codes become sign-magnitude by zigzag (0, −1, 1, −2 … to 0, 1, 2, 3 …), so that residual
0 is all zeros, and bit planes of smooth data are long runs of zeros.

Layout. `planes`: uint16, tiles of 2048 codes (the last one filled with residual 0). Within a tile: 16 planes, from the lowest bit;
within a plane 16 blocks of 8 words; block g covers codes 128·g to 128·g + 127 of the tile, and bit j of its word w belongs to code
128·g + 8·j + w. `count`: one int64, the number of codes. `flags`: bytes, one bit per block in that order, lowest bit first, set where the
block is not all zeros: 32 bytes per tile. `blocks`: uint16, the blocks that are not all zeros, one after another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop
from armillary.parameters import parameter

from .slabs import each, pieces, shares
from .stage import Context, Port, Stage

TILE, PLANES, BLOCK = 2048, 16, 8
_LANES = TILE // PLANES
_GROUP = 128


@dataclass(frozen=True)
class Bitshuffle(Stage):
    """Applies zigzag and transposes 16 by 16 bits, tile by tile."""

    centre: int = parameter(512, "the code of residual 0", range=(0, 65535))

    name = "bitshuffle"
    inputs = (Port("codes", "codes"),)
    outputs = (Port("planes", "words"), Port("count", "ints"))

    def forward(self, ctx: Context, *, codes: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns bit planes."""
        tiles = -(-codes.size // TILE)
        planes = np.empty(tiles * TILE, np.uint16)
        each(lambda a, b: _shuffle(codes, planes, a, b, self.centre), shares(tiles, ctx.threads), ctx.threads)
        return {"planes": planes, "count": np.array([codes.size], np.int64)}

    def inverse(self, ctx: Context, *, planes: np.ndarray, count: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns the codes."""
        if (
            count.dtype != np.int64
            or count.size != 1
            or not 0 <= int(count[0]) <= planes.size
            or planes.dtype != np.uint16
            or planes.size % TILE
        ):
            raise InputError(f"bit planes: found {planes.size} words for {count} codes; expected whole tiles of {TILE}")
        codes = np.empty(planes.size, np.uint16)
        each(lambda a, b: _unshuffle(planes, codes, a, b, self.centre), shares(planes.size // TILE, ctx.threads), ctx.threads)
        return {"codes": codes[: int(count[0])]}


@dataclass(frozen=True)
class ZeroBlocks(Stage):
    """Drops blocks of 16 bytes that are all zeros, and keeps a bit for each."""

    name = "zero-blocks"
    inputs = (Port("planes", "words"),)
    outputs = (Port("flags", "bytes"), Port("blocks", "words"))

    def forward(self, ctx: Context, *, planes: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns flags and the blocks that are not zero."""
        count = planes.size // BLOCK
        flags = np.zeros(-(-count // 8), np.uint8)
        parts = pieces(count, _GROUP * PLANES * PLANES)
        blocks = each(lambda a, b: _compact(planes, flags, a, b), parts, ctx.threads)
        return {"flags": flags, "blocks": np.concatenate(blocks) if blocks else np.zeros(0, np.uint16)}

    def inverse(self, ctx: Context, *, flags: np.ndarray, blocks: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns the planes."""
        if flags.dtype != np.uint8 or blocks.dtype != np.uint16 or flags.size > 32 * (ctx.size // TILE + 1):
            raise InputError(f"zero blocks: found {flags.size} bytes of flags for {ctx.size} values")
        parts = pieces(flags.size, _GROUP * 32)
        counts = each(lambda a, b: _ones(flags[a:b]), parts, ctx.threads)
        if sum(counts) * BLOCK != blocks.size:
            raise InputError(f"zero blocks: found {blocks.size} words; the flags ask for {sum(counts) * BLOCK}")
        starts = dict(zip(parts, np.concatenate([[0], np.cumsum(counts)])[:-1], strict=True)) if parts else {}
        planes = np.empty(flags.size * 8 * BLOCK, np.uint16)
        each(lambda a, b: _expand(flags, blocks, planes, a, b, starts[a, b]), parts, ctx.threads)
        return {"planes": planes}


@loop
def _swap(low, high, shift, mask):
    for w in range(low.size):
        swap = np.uint16(np.uint16(np.uint16(low[w] >> shift) ^ high[w]) & mask)
        high[w] = np.uint16(high[w] ^ swap)
        low[w] = np.uint16(low[w] ^ np.uint16(swap << shift))


@loop
def transpose(work):
    """Transposes the bits of 16 rows of words in place: bit p of row j becomes bit j of row p, in every lane."""
    for j in range(8):
        _swap(work[j], work[j + 8], np.uint16(8), np.uint16(0x00FF))
    for j in (0, 1, 2, 3, 8, 9, 10, 11):
        _swap(work[j], work[j + 4], np.uint16(4), np.uint16(0x0F0F))
    for j in (0, 1, 4, 5, 8, 9, 12, 13):
        _swap(work[j], work[j + 2], np.uint16(2), np.uint16(0x3333))
    for j in range(0, 16, 2):
        _swap(work[j], work[j + 1], np.uint16(1), np.uint16(0x5555))


@loop
def spread(tile, work):
    """Deals 2048 words to 16 rows of 128, eight words at a time, so that a block of a plane is 128 neighbours. Both are uint64."""
    for g in range(PLANES):
        for j in range(PLANES):
            work[j, 2 * g] = tile[32 * g + 2 * j]
            work[j, 2 * g + 1] = tile[32 * g + 2 * j + 1]


@loop
def gather(work, tile):
    """Undoes `spread`."""
    for g in range(PLANES):
        for j in range(PLANES):
            tile[32 * g + 2 * j] = work[j, 2 * g]
            tile[32 * g + 2 * j + 1] = work[j, 2 * g + 1]


@loop
def _shuffle(codes, planes, first, last, centre):
    tile, work = np.zeros(TILE, np.uint16), np.empty((PLANES, _LANES), np.uint16)
    tile64, work64 = tile.view(np.uint64), work.view(np.uint64)
    middle = np.int16(centre)
    for t in range(first, last):
        source = codes[t * TILE : min(codes.size, (t + 1) * TILE)]
        if source.size < TILE:
            tile[:] = 0
        for i in range(source.size):
            d = np.int16(np.int16(source[i]) - middle)
            tile[i] = np.uint16(np.int16(np.int16(d << 1) ^ np.int16(d >> 15)))
        spread(tile64, work64)
        transpose(work)
        planes[t * TILE : (t + 1) * TILE] = work.reshape(TILE)


@loop
def _unshuffle(planes, codes, first, last, centre):
    tile, work = np.zeros(TILE, np.uint16), np.empty((PLANES, _LANES), np.uint16)
    tile64, work64 = tile.view(np.uint64), work.view(np.uint64)
    flat = work.reshape(TILE)
    middle = np.uint16(centre)
    for t in range(first, last):
        flat[:] = planes[t * TILE : (t + 1) * TILE]
        transpose(work)
        gather(work64, tile64)
        target = codes[t * TILE : (t + 1) * TILE]
        for i in range(TILE):
            z = tile[i]
            target[i] = np.uint16(np.uint16(np.uint16(z >> np.uint16(1)) ^ np.uint16(-np.int16(z & np.uint16(1)))) + middle)


@loop
def _compact(planes, flags, first, last):
    words = planes.view(np.uint64)
    out = np.empty((last - first) * 2, np.uint64)
    at = 0
    for b in range(first, last):
        low, high = words[2 * b], words[2 * b + 1]
        kept = np.int64((low | high) != 0)
        out[at] = low
        out[at + 1] = high
        at += 2 * kept
        flags[b >> 3] |= np.uint8(kept << (b & 7))
    return out[:at].copy().view(np.uint16)


@loop
def _ones(flags):
    count = 0
    for i in range(flags.size):
        f = np.int64(flags[i])
        f -= (f >> 1) & 0x55
        f = (f & 0x33) + ((f >> 2) & 0x33)
        count += (f + (f >> 4)) & 0x0F
    return count


@loop
def _expand(flags, blocks, planes, first, last, taken):
    source, target = blocks.view(np.uint64), planes.view(np.uint64)
    at = 2 * taken
    for f in range(first, last):
        bits = flags[f]
        for k in range(8):
            b = 2 * (8 * f + k)
            if (bits >> k) & 1:
                target[b] = source[at]
                target[b + 1] = source[at + 1]
                at += 2
            else:
                target[b] = 0
                target[b + 1] = 0
