"""The stage `fz-fused` is FZ-GPU's pipeline as one kernel without interchangeable parts, a rival of the modular pipelines.

It does dual quantisation, Lorenzo prediction, bitshuffle and zero blocks while the values are in the cache. FZ-GPU: A Fast and High-Ratio
Lossy Compressor for Scientific Computing Applications on GPUs, HPDC 2023; here it is for CPUs, with the guarantee of this arena.

Layout. The chunk is cut into pieces of about 2^17 values: whole planes in 3-D, rows in 2-D, values in 1-D; prediction restarts in each
(our design). A piece has tiles of 2048 codes, its last one filled with zeros. Code: zigzag of the residual, 65535 for one beyond
±32766. `flags`: 32 bytes per tile and `blocks`: uint16, as in `bitshuffle`. `counts`: uint32, two per piece: blocks and outliers.
`outliers`: int32, `raw_index`, `raw`: as in `lorenzo`; |q| ≥ 2^30 is raw.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop

from .bitshuffle import PLANES, TILE, gather, spread, transpose
from .lorenzo import check_raw
from .quantise import NARROW, collect_violators, quantise_row, room
from .slabs import each, pieces
from .stage import Context, Port, Stage

_PIECE = 1 << 17
_LANES = TILE // PLANES
_ESCAPE = 65535


@dataclass(frozen=True)
class FzFusedStage(Stage):
    """Quantises, predicts, shuffles and drops zeros in one pass."""

    name = "fz-fused"
    inputs = (Port("data", "float"), Port("bound", "float64"))
    outputs = (
        Port("flags", "bytes"), Port("blocks", "words"), Port("counts", "index"), Port("outliers", "ints"),
        Port("raw_index", "index"), Port("raw", "float"),
    )  # fmt: skip

    def forward(self, ctx: Context, *, data: np.ndarray, bound: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns flags, blocks, outliers and violators."""
        planes, rows, x, parts = _cut(ctx)
        eps = float(bound[0])
        found = each(lambda a, b: _encode(data, planes, rows, x, a, b, eps, 0.5 / eps), parts, ctx.threads)
        flags, blocks, outliers, index, raw = (np.concatenate([f[i] for f in found]) for i in range(5))
        counts = np.array([[f[1].size // 8, f[2].size] for f in found], np.uint32).reshape(-1)
        return {"flags": flags, "blocks": blocks, "counts": counts, "outliers": outliers, "raw_index": index, "raw": raw}

    def inverse(  # type: ignore[override]
        self, ctx: Context, *, flags: np.ndarray, blocks: np.ndarray, counts: np.ndarray, outliers: np.ndarray,
        raw_index: np.ndarray, raw: np.ndarray, bound: np.ndarray,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """Returns the values, within the bound."""
        planes, rows, x, parts = _cut(ctx)
        check_raw(ctx, raw_index, raw)
        tiles = np.array([0, *(-(-(b - a) // TILE) for a, b in parts)]).cumsum()
        if counts.size != 2 * len(parts) or flags.size != 32 * tiles[-1] or blocks.dtype != np.uint16 or outliers.dtype != np.int32:
            raise InputError(
                f"fused pieces: found {counts.size // 2} with {flags.size} bytes of flags; expected {len(parts)}, {32 * tiles[-1]}"
            )
        ends = np.concatenate([[[0, 0]], counts.reshape(-1, 2).astype(np.int64).cumsum(axis=0)])
        if ends[-1, 0] * 8 != blocks.size or ends[-1, 1] != outliers.size:
            raise InputError("fused pieces: the counts do not add up to blocks and outliers")
        out = np.empty(ctx.size, raw.dtype)
        number = {part: i for i, part in enumerate(parts)}
        width = 2.0 * float(bound[0])

        def part(a: int, b: int) -> int:
            i = number[a, b]
            own_flags, own_blocks = flags[32 * tiles[i] : 32 * tiles[i + 1]], blocks[8 * ends[i, 0] : 8 * ends[i + 1, 0]]
            return _decode(own_flags, own_blocks, outliers[ends[i, 1] : ends[i + 1, 1]], out, planes, rows, x, a, b, width)

        if sum(each(part, parts, ctx.threads)):
            raise InputError("fused pieces: flags and codes ask for other blocks and outliers than there are")
        out[raw_index] = raw
        return {"data": out}


def _cut(ctx: Context) -> tuple[int, int, int, list[tuple[int, int]]]:
    """Returns (planes, rows, x) of a restart and the pieces in values; a piece has whole planes, rows or values within one batch."""
    batch, z, y, x = ctx.shape
    item = z * y * x
    size = piece_size(ctx.shape, ctx.dimensions)
    return z, y, x, [(k * item + a, k * item + b) for k in range(batch) for a, b in pieces(item, size)]


def piece_size(shape: tuple[int, int, int, int], dimensions: int) -> int:
    """Returns the number of values of a whole piece of planes, rows or values, whichever prediction runs over last."""
    unit = {1: 1, 2: shape[3], 3: shape[2] * shape[3]}[dimensions]
    return max(1, _PIECE // unit) * unit


@loop
def _encode(data, planes, rows, x, first, last, eps, inverse):
    n = last - first
    tiles = -(-n // TILE)
    codes = np.zeros(tiles * TILE, np.uint16)
    outliers, found = np.empty(16, np.int32), 0
    index, raw, spoilt = np.empty(16, np.uint32), np.empty(16, data.dtype), 0
    length = min(x, n)
    q, across, residuals = np.empty(length, np.int32), np.empty(length, np.int32), np.empty(length, np.int32)
    above, behind = np.zeros(length, np.int32), np.zeros((rows if planes > 1 else 1, length), np.int32)
    for r in range(n // length):
        start = first + r * length
        bad = quantise_row(data[start : start + length], q, eps, inverse, NARROW)
        row = r % rows
        if row == 0 and planes > 1:
            above[:] = 0
        was, target = behind[row if planes > 1 else 0], codes[r * length : (r + 1) * length]
        outside = False
        across[0] = q[0]
        for i in range(1, length):
            across[i] = q[i] - q[i - 1]
        for i in range(length):
            flat = np.int32(across[i] - above[i])
            above[i] = across[i]
            d = np.int32(flat - was[i])
            was[i] = flat if planes > 1 else np.int32(0)
            residuals[i] = d
            inside = (d > -32767) & (d < 32767)
            target[i] = np.uint16((d << 1) ^ (d >> 31)) if inside else np.uint16(_ESCAPE)
            outside |= not inside
        if outside:
            outliers = room(outliers, found, length)
            for i in range(length):
                if target[i] == _ESCAPE:
                    outliers[found] = residuals[i]
                    found += 1
        if bad:
            index, raw = room(index, spoilt, length), room(raw, spoilt, length)
            spoilt = collect_violators(data[start : start + length], start, index, raw, spoilt, eps, inverse, NARROW)
    flags = np.zeros(32 * tiles, np.uint8)
    blocks, at = np.empty(codes.size // 4 + 2, np.uint64), 0
    work = np.empty((PLANES, _LANES), np.uint16)
    words, rows64, wide = work.reshape(TILE).view(np.uint64), work.view(np.uint64), codes.view(np.uint64)
    for tile in range(tiles):
        spread(wide[tile * TILE // 4 : (tile + 1) * TILE // 4], rows64)
        transpose(work)
        for b in range(256):
            low, high = words[2 * b], words[2 * b + 1]
            kept = np.int64((low | high) != 0)
            blocks[at], blocks[at + 1] = low, high
            at += 2 * kept
            flags[32 * tile + (b >> 3)] |= np.uint8(kept << (b & 7))
    return flags, blocks[:at].copy().view(np.uint16), outliers[:found].copy(), index[:spoilt].copy(), raw[:spoilt].copy()


@loop
def _decode(flags, blocks, outliers, out, planes, rows, x, first, last, width):
    n = last - first
    tiles = -(-n // TILE)
    codes = np.empty(tiles * TILE, np.uint16)
    work = np.empty((PLANES, _LANES), np.uint16)
    words, source = work.reshape(TILE).view(np.uint64), blocks.view(np.uint64)
    rows64, wide = work.view(np.uint64), codes.view(np.uint64)
    at = 0
    for tile in range(tiles):
        for b in range(256):
            if (flags[32 * tile + (b >> 3)] >> (b & 7)) & 1:
                if at + 2 > source.size:
                    return 1
                words[2 * b], words[2 * b + 1] = source[at], source[at + 1]
                at += 2
            else:
                words[2 * b], words[2 * b + 1] = np.uint64(0), np.uint64(0)
        transpose(work)
        gather(rows64, wide[tile * TILE // 4 : (tile + 1) * TILE // 4])
    if at != source.size:
        return 1
    length = min(x, n)
    above, behind = np.zeros(length, np.int32), np.zeros((rows if planes > 1 else 1, length), np.int32)
    taken = 0
    for r in range(n // length):
        row = r % rows
        if row == 0 and planes > 1:
            above[:] = 0
        was = behind[row if planes > 1 else 0]
        left = np.int32(0)
        for i in range(length):
            code = np.int32(codes[r * length + i])
            d = np.int32((code >> 1) ^ -(code & 1))
            if code == _ESCAPE:
                if taken == outliers.size:
                    return 1
                d = outliers[taken]
                taken += 1
            left = np.int32(left + d)
            # `left` is the prefix sum along x of the residual; the sums along y and z follow in place.
            above[i] = np.int32(above[i] + left)
            if planes > 1:
                was[i] = np.int32(was[i] + above[i])
                out[first + r * length + i] = width * np.float64(was[i])
            else:
                out[first + r * length + i] = width * np.float64(above[i])
    return np.int64(taken != outliers.size)
