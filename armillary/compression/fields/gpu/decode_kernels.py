"""From blocks back to values: planes, residuals with the outliers among them, prefix sums along each axis, x' = 2ε·q."""

from __future__ import annotations

import triton
import triton.language as tl

from .quantise_kernels import ones, spot


@triton.jit
def count_blocks(flags, counts, tiles, TILES: tl.constexpr):
    """Counts the blocks that the flags of each tile ask for."""
    tile = tl.program_id(0) * TILES + tl.arange(0, TILES)
    inside = tile < tiles
    words = tl.load(flags + tile[:, None] * 16 + tl.arange(0, 16)[None, :], mask=inside[:, None], other=0).to(tl.int32) & 0xFFFF
    tl.store(counts + tile, tl.sum(ones(words), axis=1), mask=inside)


@triton.jit
def _load_pair(blocks, flags, start, group, word, inside, k: tl.constexpr):
    bits = tl.load(flags + k, mask=inside, other=0).to(tl.int32) & 0xFFFF
    kept = ((bits >> group) & 1) != 0
    place = (start + ones(bits & ((1 << group) - 1))) * 8 + word
    return tl.load(blocks + place, mask=kept, other=0).to(tl.uint32) & 0xFFFF, ones(bits)


@triton.jit
def to_residuals(
    flags, ends, counts, blocks, out, zeros, tiles, item_tiles, piece_tiles, item_size, piece_size, radius, centre, TILES: tl.constexpr
):
    """Computes the residuals of TILES tiles, −radius for every code 0, and counts those per tile."""
    lane = tl.arange(0, TILES * 128)
    tile = tl.program_id(0) * TILES + lane // 128
    inside = tile < tiles
    group, word = (lane % 128) // 8, lane % 8
    start = tl.load(ends + tile, mask=inside, other=0) - tl.load(counts + tile, mask=inside, other=0)
    row = flags + tile * 16
    a0, used = _load_pair(blocks, row, start, group, word, inside, 0)
    start += used
    a1, used = _load_pair(blocks, row, start, group, word, inside, 1)
    start += used
    a2, used = _load_pair(blocks, row, start, group, word, inside, 2)
    start += used
    a3, used = _load_pair(blocks, row, start, group, word, inside, 3)
    start += used
    a4, used = _load_pair(blocks, row, start, group, word, inside, 4)
    start += used
    a5, used = _load_pair(blocks, row, start, group, word, inside, 5)
    start += used
    a6, used = _load_pair(blocks, row, start, group, word, inside, 6)
    start += used
    a7, used = _load_pair(blocks, row, start, group, word, inside, 7)
    start += used
    b, used = _load_pair(blocks, row, start, group, word, inside, 8)
    start += used
    a0 |= b << 16
    b, used = _load_pair(blocks, row, start, group, word, inside, 9)
    start += used
    a1 |= b << 16
    b, used = _load_pair(blocks, row, start, group, word, inside, 10)
    start += used
    a2 |= b << 16
    b, used = _load_pair(blocks, row, start, group, word, inside, 11)
    start += used
    a3 |= b << 16
    b, used = _load_pair(blocks, row, start, group, word, inside, 12)
    start += used
    a4 |= b << 16
    b, used = _load_pair(blocks, row, start, group, word, inside, 13)
    start += used
    a5 |= b << 16
    b, used = _load_pair(blocks, row, start, group, word, inside, 14)
    start += used
    a6 |= b << 16
    b, used = _load_pair(blocks, row, start, group, word, inside, 15)
    a7 |= b << 16
    begin, length, offset = spot(tile, item_tiles, piece_tiles, item_size, piece_size)
    first = offset + group * 128 + word
    nothing = tl.zeros([TILES * 128], tl.int32)
    for j in range(16):
        z = (a0 >> j) & 0x00010001
        z |= ((a1 >> j) & 0x00010001) << 1
        z |= ((a2 >> j) & 0x00010001) << 2
        z |= ((a3 >> j) & 0x00010001) << 3
        z |= ((a4 >> j) & 0x00010001) << 4
        z |= ((a5 >> j) & 0x00010001) << 5
        z |= ((a6 >> j) & 0x00010001) << 6
        z |= ((a7 >> j) & 0x00010001) << 7
        zigzag = ((z & 0xFF) | ((z >> 8) & 0xFF00)).to(tl.int32)
        code = (((zigzag >> 1) ^ -(zigzag & 1)) + centre) & 0xFFFF
        at = first + 8 * j
        valid = inside & (at < length)
        tl.store(out + begin + at, (code - radius).to(out.dtype.element_ty), mask=valid)
        nothing += (valid & (code == 0)).to(tl.int32)
    mine = tl.program_id(0) * TILES + tl.arange(0, TILES)
    tl.store(zeros + mine, tl.sum(tl.reshape(nothing, [TILES, 128]), axis=1), mask=mine < tiles)


@triton.jit
def from_codes(codes, out, zeros, size, radius, BLOCK: tl.constexpr):
    """Computes the residuals of one tile of codes, −radius for every code 0, and counts those."""
    tile = tl.program_id(0)
    at = tile * BLOCK + tl.arange(0, BLOCK)
    valid = at < size
    code = tl.load(codes + at, mask=valid, other=1).to(tl.int32) & 0xFFFF
    tl.store(out + at, (code - radius).to(out.dtype.element_ty), mask=valid)
    tl.store(zeros + tile, tl.sum((code == 0).to(tl.int32), axis=0))


@triton.jit
def insert(values, ends, counts, outliers, item_tiles, piece_tiles, item_size, piece_size, radius):
    """Puts outliers into the places of the zero codes of one tile."""
    tile = tl.program_id(0)
    count = tl.load(counts + tile)
    if count > 0:
        begin, length, offset = spot(tile, item_tiles, piece_tiles, item_size, piece_size)
        local = offset + tl.arange(0, 2048)
        valid, at = local < length, begin + local
        missing = valid & (tl.load(values + at, mask=valid, other=0) == -radius)
        place = (tl.load(ends + tile) - count) + tl.cumsum(missing.to(tl.int32), axis=0) - 1
        tl.store(values + at, tl.load(outliers + place, mask=missing, other=0), mask=missing)


@triton.jit
def sum_rows(values, totals, size, rows, nx, segments, ROWS: tl.constexpr, SEGMENT: tl.constexpr):
    """Computes prefix sums along x within segments, in place, and the sum of each segment."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    segment = tl.program_id(1)
    column = segment * SEGMENT + tl.arange(0, SEGMENT)
    at = row[:, None] * nx + column[None, :]
    valid = (column[None, :] < nx) & (at < size)
    found = tl.load(values + at, mask=valid, other=0)
    tl.store(values + at, tl.cumsum(found, axis=1), mask=valid)
    tl.store(totals + row * segments + segment, tl.sum(found, axis=1), mask=row < rows)


@triton.jit
def finish_rows(values, carries, out, width, size, nx, segments, SEGMENT: tl.constexpr, LAST: tl.constexpr, BLOCK: tl.constexpr):
    """Adds what came before each segment; the values themselves where this is the LAST axis."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = at < size
    row = at // nx
    carry = tl.load(carries + row * segments + (at - row * nx) // SEGMENT, mask=valid, other=0)
    total = tl.add(tl.load(values + at, mask=valid, other=0), carry, sanitize_overflow=False)
    if LAST:
        tl.store(out + at, (tl.load(width) * total.to(tl.float64)).to(out.dtype.element_ty), mask=valid)
    else:
        tl.store(out + at, total, mask=valid)


@triton.jit
def sum_down(values, out, width, n, restart, parts, inner, LAST: tl.constexpr, DEPTH: tl.constexpr, WIDTH: tl.constexpr):
    """Computes prefix sums along the middle axis of (…, n, inner), DEPTH at a time, anew at every `restart` (`parts` of them); the values
    themselves where this is the LAST axis."""
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    outer = tl.program_id(0) // parts
    begin = (tl.program_id(0) - outer * parts) * restart
    end = tl.minimum(begin + restart, n)
    base = outer * n * inner
    carry = tl.zeros([WIDTH], values.dtype.element_ty)
    for first in range(begin, end, DEPTH):
        depth = first + tl.arange(0, DEPTH)
        at = base + depth[:, None] * inner + column[None, :]
        valid = (depth[:, None] < end) & (column[None, :] < inner)
        found = tl.load(values + at, mask=valid, other=0)
        total = tl.add(tl.cumsum(found, axis=0), carry[None, :], sanitize_overflow=False)
        carry = tl.add(carry, tl.sum(found, axis=0), sanitize_overflow=False)
        if LAST:
            tl.store(out + at, (tl.load(width) * total.to(tl.float64)).to(out.dtype.element_ty), mask=valid)
        else:
            tl.store(out + at, total, mask=valid)
