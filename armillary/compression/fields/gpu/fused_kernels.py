"""`fz-fused` and `cuszp-fused`, each one kernel from values to compacted blocks; layouts as in the host's files of those names.

A program learns where its blocks go while the others still work (decoupled look-back: Merrill and Garland, Single-pass Parallel Prefix
Scan with Decoupled Look-back, 2016): it publishes what it has, adds up what those before it published, and publishes the sum. Numbers are
drawn, not taken from the grid, so that every program waits for running ones alone.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .encode_kernels import blocks_seen, shuffled
from .quantise_kernels import less, ones, rounded


@triton.jit
def sum_before(state, number, own, WINDOW: tl.constexpr):
    """Returns the sum over the programs before `number`.

    `state` has one int64 each, which is zero at first, then 4·sum + 1 (own) or 4·sum + 2 (up to it).
    """
    own = own.to(tl.int64)
    tl.atomic_xchg(state + number, own * 4 + 1, sem="relaxed")
    total = own * 0
    lane = tl.arange(0, WINDOW)
    last = number - 1
    while last >= 0:
        at = last - lane
        found = tl.load(state + at, mask=at >= 0, other=2, volatile=True)
        settled = tl.min(tl.where((found & 3) == 2, lane, WINDOW), axis=0)
        missing = tl.min(tl.where((found & 3) == 0, lane, WINDOW), axis=0)
        if missing >= settled:
            total += tl.sum(tl.where(lane <= settled, found >> 2, 0), axis=0)
            last = tl.where(settled < WINDOW, -1, last - WINDOW)
    tl.atomic_xchg(state + number, (total + own) * 4 + 2, sem="relaxed")
    return total


@triton.jit
def _four_planes(merged, group, k: tl.constexpr):
    """Returns the flags of planes k to k + 3, 16 bits each."""
    wide = merged.to(tl.int64)
    bits = ((wide >> k) & 1) | (((wide >> (k + 1)) & 1) << 16) | (((wide >> (k + 2)) & 1) << 32) | (((wide >> (k + 3)) & 1) << 48)
    return tl.sum(bits << group.to(tl.int64), axis=0)


@triton.jit
def _store_plane(out, words, kept, flags, group, start, k: tl.constexpr):
    """Stores the blocks of plane k that are not zero, from block `start` on; returns where the next plane's blocks start."""
    bits = ((flags >> (16 * (k % 4))) & 0xFFFF).to(tl.int32)
    place = (start + ones(bits & ((1 << group) - 1))) * 8
    tl.store(out + place, (words & 0xFFFF).to(tl.uint16).to(tl.int16, bitcast=True), mask=((kept >> k) & 1) != 0)
    return start + ones(bits)


@triton.jit
def _four_ones(flags):
    low, high = (flags & 0xFFFFFFFF).to(tl.int32), ((flags >> 32) & 0xFFFFFFFF).to(tl.int32)
    return ones(low & 0xFFFF) + ones((low >> 16) & 0xFFFF) + ones(high & 0xFFFF) + ones((high >> 16) & 0xFFFF)


@triton.jit
def fz(
    x, facts, drawn, state, flags, blocks, counts, outliers, violators, tiles, item_tiles, piece_tiles, item_size, piece_size,
    nx, ny, nz, mx, sx, my, sy, mz, sz, DIMENSIONS: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Codes one tile: its flags, its blocks in their final place, and the number of its blocks, outliers and violators."""
    tile = tl.atomic_add(drawn, 1, sem="relaxed")
    lane = tl.arange(0, 128)
    a0, a1, a2, a3, a4, a5, a6, a7, seen, far, spoilt = shuffled(
        x, facts, tile, lane, tiles, item_tiles, piece_tiles, item_size, piece_size, nx, ny, nz, mx, sx, my, sy, mz, sz,
        32767, 32768, 32768, DIMENSIONS, False, 128,
    )  # fmt: skip
    merged = blocks_seen(seen, 16)
    block = tl.arange(0, 16)
    f0, f1 = _four_planes(merged, block, 0), _four_planes(merged, block, 4)
    f2, f3 = _four_planes(merged, block, 8), _four_planes(merged, block, 12)
    own = _four_ones(f0) + _four_ones(f1) + _four_ones(f2) + _four_ones(f3)
    start = sum_before(state, tile, own, WINDOW).to(tl.int32)
    row = flags + tile * 4
    tl.store(row, f0)
    tl.store(row + 1, f1)
    tl.store(row + 2, f2)
    tl.store(row + 3, f3)
    tl.store(counts + tile, own)
    tl.store(outliers + tile, tl.sum(far, axis=0))
    tl.store(violators + tile, tl.sum(spoilt, axis=0))
    kept = tl.reshape(tl.broadcast_to(merged[:, None], [16, 8]), [128])
    group, out = lane // 8, blocks + lane % 8
    start = _store_plane(out, a0, kept, f0, group, start, 0)
    start = _store_plane(out, a1, kept, f0, group, start, 1)
    start = _store_plane(out, a2, kept, f0, group, start, 2)
    start = _store_plane(out, a3, kept, f0, group, start, 3)
    start = _store_plane(out, a4, kept, f1, group, start, 4)
    start = _store_plane(out, a5, kept, f1, group, start, 5)
    start = _store_plane(out, a6, kept, f1, group, start, 6)
    start = _store_plane(out, a7, kept, f1, group, start, 7)
    start = _store_plane(out, a0 >> 16, kept, f2, group, start, 8)
    start = _store_plane(out, a1 >> 16, kept, f2, group, start, 9)
    start = _store_plane(out, a2 >> 16, kept, f2, group, start, 10)
    start = _store_plane(out, a3 >> 16, kept, f2, group, start, 11)
    start = _store_plane(out, a4 >> 16, kept, f3, group, start, 12)
    start = _store_plane(out, a5 >> 16, kept, f3, group, start, 13)
    start = _store_plane(out, a6 >> 16, kept, f3, group, start, 14)
    _store_plane(out, a7 >> 16, kept, f3, group, start, 15)


@triton.jit
def _quantised(x, at, valid, eps, inverse, width):
    source = tl.load(x + at, mask=valid, other=0.0)
    value = source.to(tl.float64)
    q, r, inside = rounded(value, inverse, False)
    back = (width * r).to(source.dtype).to(tl.float64)
    return q, valid & ~(inside & (tl.abs(value - back) <= eps))


@triton.jit
def _bits(v):
    """Returns how many bits `v` (uint32) takes."""
    total = tl.zeros_like(v).to(tl.int32)
    high = v > 0xFFFF
    total += tl.where(high, 16, 0)
    v = tl.where(high, v >> 16, v)
    high = v > 0xFF
    total += tl.where(high, 8, 0)
    v = tl.where(high, v >> 8, v)
    high = v > 0xF
    total += tl.where(high, 4, 0)
    v = tl.where(high, v >> 4, v)
    high = v > 0x3
    total += tl.where(high, 2, 0)
    v = tl.where(high, v >> 2, v)
    return total + tl.where(v > 1, 2, v.to(tl.int32))


@triton.jit
def cuszp(x, facts, drawn, state, widths, words, totals, violators, size, blocks, BLOCKS: tl.constexpr, WINDOW: tl.constexpr):
    """Packs BLOCKS blocks of 32 values: widths, words in their final place, and the number of words and violators."""
    number = tl.atomic_add(drawn, 1, sem="relaxed")
    eps, inverse, width = tl.load(facts), tl.load(facts + 1), tl.load(facts + 2)
    block = number * BLOCKS + tl.arange(0, BLOCKS)
    lane = tl.arange(0, 32)
    at = block[:, None] * 32 + lane[None, :]
    valid = at < size
    q, bad = _quantised(x, at, valid, eps, inverse, width)
    left, _ = _quantised(x, at - 1, valid & (lane[None, :] > 0), eps, inverse, width)
    d = tl.where(valid, less(q, left), 0)
    length = tl.abs(d).to(tl.uint32)
    bits = _bits(tl.max(length, axis=1))
    own = bits + (bits > 0).to(tl.int32)
    ends = tl.cumsum(own, axis=0)
    total = tl.sum(own, axis=0)
    out = words + (sum_before(state, number, total, WINDOW) + (ends - own))
    tl.store(widths + block, bits.to(tl.int8), mask=block < blocks)
    tl.store(totals + number, total)
    tl.store(violators + number, tl.sum(tl.sum(bad.to(tl.int32), axis=1), axis=0))
    signs = tl.sum((d < 0).to(tl.uint32) << lane[None, :].to(tl.uint32), axis=1)
    tl.store(out, signs.to(tl.int32, bitcast=True), mask=bits > 0)
    for p in range(tl.max(bits, axis=0)):
        plane = tl.sum(((length >> p) & 1) << lane[None, :].to(tl.uint32), axis=1)
        tl.store(out + 1 + p, plane.to(tl.int32, bitcast=True), mask=p < bits)


@triton.jit
def cuszp_violators(x, facts, ends, counts, places, raw, size, BLOCK: tl.constexpr):
    """Writes places and bits of violators, in the order of the values."""
    number = tl.program_id(0)
    count = tl.load(counts + number)
    if count > 0:
        eps, inverse, width = tl.load(facts), tl.load(facts + 1), tl.load(facts + 2)
        at = number * BLOCK + tl.arange(0, BLOCK)
        valid = at < size
        _, bad = _quantised(x, at, valid, eps, inverse, width)
        order = (tl.load(ends + number) - count) + tl.cumsum(bad.to(tl.int32), axis=0) - 1
        tl.store(places + order, at, mask=bad)
        tl.store(raw + order, tl.load(x + at, mask=bad, other=0.0), mask=bad)


@triton.jit
def cuszp_values(widths, ends, words, out, step, size, blocks, BLOCKS: tl.constexpr):
    """Restores the values of BLOCKS blocks."""
    block = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    inside = block < blocks
    lane = tl.arange(0, 32)
    bits = tl.load(widths + block, mask=inside, other=0).to(tl.int32)
    source = words + tl.load(ends + block, mask=inside, other=0) - bits - (bits > 0).to(tl.int32)
    signs = tl.load(source, mask=bits > 0, other=0).to(tl.uint32, bitcast=True)
    length = tl.zeros([BLOCKS, 32], tl.int64)
    for p in range(tl.max(bits, axis=0)):
        plane = tl.load(source + 1 + p, mask=p < bits, other=0).to(tl.uint32, bitcast=True)
        length |= ((plane[:, None] >> lane[None, :].to(tl.uint32)) & 1).to(tl.int64) << p
    negative = ((signs[:, None] >> lane[None, :].to(tl.uint32)) & 1) != 0
    q = tl.cumsum(tl.where(negative, -length, length), axis=1)
    at = block[:, None] * 32 + lane[None, :]
    tl.store(out + at, (tl.load(step) * q.to(tl.float64)).to(out.dtype.element_ty), mask=inside[:, None] & (at < size))
