"""From values to bit planes, flags and blocks: `range`, `lorenzo`, `bitshuffle` and `zero-blocks` fused; layouts as in those files.

A lane of `to_planes` holds words w of block g in all 16 planes of a tile: it meets its 16 codes one after another, and no two lanes need
to exchange bits. Planes k and k + 8 share a 32-bit accumulator.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .quantise_kernels import ones, residual, spot


@triton.jit
def _either(a, b):
    return a | b


@triton.jit
def extremes(x, low, high, odd, size, BLOCK: tl.constexpr, ROUNDS: tl.constexpr):
    """Finds the least and largest finite value of each BLOCK·ROUNDS values, and counts those that are not finite."""
    program = tl.program_id(0)
    first = program * (BLOCK * ROUNDS) + tl.arange(0, BLOCK)
    value = tl.load(x + first, mask=first < size, other=0.0)
    least = tl.full([BLOCK], float("inf"), value.dtype)
    most = tl.full([BLOCK], float("-inf"), value.dtype)
    wrong = tl.zeros([BLOCK], tl.int32)
    for r in range(ROUNDS):
        at = first + r * BLOCK
        valid = at < size
        value = tl.load(x + at, mask=valid, other=0.0)
        finite = tl.abs(value) < float("inf")
        least = tl.where(valid & finite & (value < least), value, least)
        most = tl.where(valid & finite & (value > most), value, most)
        wrong += (valid & ~finite).to(tl.int32)
    tl.store(low + program, tl.min(least, axis=0))
    tl.store(high + program, tl.max(most, axis=0))
    tl.store(odd + program, tl.sum(wrong, axis=0))


@triton.jit
def shuffled(
    x, facts, tile, lane, tiles, item_tiles, piece_tiles, item_size, piece_size, nx, ny, nz, mx, sx, my, sy, mz, sz, limit, radius, centre,
    DIMENSIONS: tl.constexpr, WIDE: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Returns planes k and k + 8 of the lanes' codes as accumulators k, all bits seen, and each lane's outliers and violators."""
    eps, inverse, width = tl.load(facts), tl.load(facts + 1), tl.load(facts + 2)
    start, length, offset = spot(tile, item_tiles, piece_tiles, item_size, piece_size)
    x += start
    length = tl.where(tile < tiles, length, 0)
    first = offset + (lane % 128) // 8 * 128 + lane % 8
    a0 = tl.zeros([LANES], tl.uint32)
    a1, a2, a3, a4, a5, a6, a7, seen = a0, a0, a0, a0, a0, a0, a0, a0
    far = tl.zeros([LANES], tl.int32)
    spoilt = far
    for j in range(16):
        at = first + 8 * j
        valid = at < length
        d, bad = residual(x, at, valid, eps, inverse, width, nx, ny, nz, mx, sx, my, sy, mz, sz, DIMENSIONS, WIDE)
        inside = (d > -limit) & (d < limit)
        e = tl.where(inside, d, -radius).to(tl.int32) + (radius - centre)
        e = ((e & 0xFFFF) ^ 0x8000) - 0x8000
        zigzag = tl.where(valid, ((e << 1) ^ (e >> 15)) & 0xFFFF, 0)
        z = ((zigzag & 0xFF) | ((zigzag & 0xFF00) << 8)).to(tl.uint32)
        seen |= z
        a0 |= (z & 0x00010001) << j
        a1 |= ((z >> 1) & 0x00010001) << j
        a2 |= ((z >> 2) & 0x00010001) << j
        a3 |= ((z >> 3) & 0x00010001) << j
        a4 |= ((z >> 4) & 0x00010001) << j
        a5 |= ((z >> 5) & 0x00010001) << j
        a6 |= ((z >> 6) & 0x00010001) << j
        a7 |= ((z >> 7) & 0x00010001) << j
        far += (valid & ~inside).to(tl.int32)
        spoilt += bad.to(tl.int32)
    return a0, a1, a2, a3, a4, a5, a6, a7, seen, far, spoilt


@triton.jit
def blocks_seen(seen, BLOCKS: tl.constexpr):
    """Finds for each block of 128 codes the planes in which it is not zero because one of its codes has a bit set."""
    merged = tl.reduce(tl.reshape(seen, [BLOCKS, 8]), 1, _either)
    return (merged & 0xFF) | ((merged >> 8) & 0xFF00)


@triton.jit
def to_planes(
    x, facts, planes, flags, blocks, outliers, violators, tiles, item_tiles, piece_tiles, item_size, piece_size,
    nx, ny, nz, mx, sx, my, sy, mz, sz, radius, centre, DIMENSIONS: tl.constexpr, WIDE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Writes planes of TILES tiles (without blocks of zeros), their flags, and the numbers of blocks, outliers and violators per tile."""
    lane = tl.arange(0, TILES * 128)
    tile = tl.program_id(0) * TILES + lane // 128
    a0, a1, a2, a3, a4, a5, a6, a7, seen, far, spoilt = shuffled(
        x, facts, tile, lane, tiles, item_tiles, piece_tiles, item_size, piece_size, nx, ny, nz, mx, sx, my, sy, mz, sz, radius, radius,
        centre, DIMENSIONS, WIDE, TILES * 128,
    )  # fmt: skip
    merged = blocks_seen(seen, TILES * 16)
    kept = tl.reshape(tl.broadcast_to(merged[:, None], [TILES * 16, 8]), [TILES * 128])
    inside_tiles = tile < tiles
    out = planes + tile * 2048 + lane % 128
    _store_pair(out, a0, kept, inside_tiles, 0)
    _store_pair(out, a1, kept, inside_tiles, 1)
    _store_pair(out, a2, kept, inside_tiles, 2)
    _store_pair(out, a3, kept, inside_tiles, 3)
    _store_pair(out, a4, kept, inside_tiles, 4)
    _store_pair(out, a5, kept, inside_tiles, 5)
    _store_pair(out, a6, kept, inside_tiles, 6)
    _store_pair(out, a7, kept, inside_tiles, 7)
    group = tl.arange(0, 16)
    masks = tl.reshape(merged, [TILES, 16]).to(tl.int32)
    bits = ((masks[:, :, None] >> group[None, None, :]) & 1) << group[None, :, None]
    words = tl.sum(bits, axis=1)
    mine = tl.program_id(0) * TILES + tl.arange(0, TILES)
    there = mine < tiles
    tl.store(flags + mine[:, None] * 16 + group[None, :], words.to(tl.int16), mask=there[:, None])
    tl.store(blocks + mine, tl.sum(ones(words), axis=1), mask=there)
    tl.store(outliers + mine, tl.sum(tl.reshape(far, [TILES, 128]), axis=1), mask=there)
    tl.store(violators + mine, tl.sum(tl.reshape(spoilt, [TILES, 128]), axis=1), mask=there)


@triton.jit
def _store_pair(out, pair, kept, inside, k: tl.constexpr):
    low, high = (pair & 0xFFFF).to(tl.uint16), (pair >> 16).to(tl.uint16)
    tl.store(out + k * 128, low.to(tl.int16, bitcast=True), mask=inside & (((kept >> k) & 1) != 0))
    tl.store(out + (k + 8) * 128, high.to(tl.int16, bitcast=True), mask=inside & (((kept >> (k + 8)) & 1) != 0))


@triton.jit
def compact(planes, flags, ends, counts, taken, blocks, tiles, TILES: tl.constexpr):
    """Writes the blocks that are not zero one after another; planes and blocks are 32-bit words, `ends` the inclusive sums of `counts`."""
    lane = tl.arange(0, TILES * 64)
    tile = tl.program_id(0) * TILES + lane // 64
    inside = tile < tiles
    group, word = (lane % 64) // 4, lane % 4
    start = tl.load(ends + tile, mask=inside, other=0) - tl.load(counts + tile, mask=inside, other=0) - taken
    source = planes + tile * 1024 + lane % 64
    for p in range(16):
        bits = tl.load(flags + tile * 16 + p, mask=inside, other=0).to(tl.int32) & 0xFFFF
        kept = ((bits >> group) & 1) != 0
        place = start + ones(bits & ((1 << group) - 1))
        tl.store(blocks + place * 4 + word, tl.load(source + p * 64, mask=kept, other=0), mask=kept)
        start += ones(bits)


@triton.jit
def collect(
    x, facts, outlier_ends, outlier_counts, violator_ends, violator_counts, first_outlier, first_violator, outliers, places, raw,
    item_tiles, piece_tiles, item_size, piece_size, nx, ny, nz, mx, sx, my, sy, mz, sz, limit, DIMENSIONS: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """Collects residuals that have no code, and places and bits of violators, in the order of the values."""
    tile = tl.program_id(0)
    far_count, bad_count = tl.load(outlier_counts + tile), tl.load(violator_counts + tile)
    if far_count + bad_count > 0:
        eps, inverse, width = tl.load(facts), tl.load(facts + 1), tl.load(facts + 2)
        start, length, offset = spot(tile, item_tiles, piece_tiles, item_size, piece_size)
        at = offset + tl.arange(0, 2048)
        valid = at < length
        d, bad = residual(x + start, at, valid, eps, inverse, width, nx, ny, nz, mx, sx, my, sy, mz, sz, DIMENSIONS, WIDE)
        far = valid & ~((d > -limit) & (d < limit))
        rank = tl.cumsum(far.to(tl.int32), axis=0) - 1
        tl.store(outliers + (tl.load(outlier_ends + tile) - far_count - first_outlier) + rank, d, mask=far)
        order = (tl.load(violator_ends + tile) - bad_count - first_violator) + tl.cumsum(bad.to(tl.int32), axis=0) - 1
        tl.store(places + order, start + at, mask=bad)
        tl.store(raw + order, tl.load(x + start + at, mask=bad, other=0.0), mask=bad)
