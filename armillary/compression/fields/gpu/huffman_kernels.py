"""Codes, their histogram, and Huffman coding in chunks of 2^14 codes; layouts as in `lorenzo` and `huffman`."""

from __future__ import annotations

import triton
import triton.language as tl

from .quantise_kernels import residual


@triton.jit
def to_codes(
    x, facts, codes, outliers, violators, size, nx, ny, nz, mx, sx, my, sy, mz, sz, radius, DIMENSIONS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Writes the codes of one tile of 2048 values, and counts its outliers and violators."""
    eps, inverse, width = tl.load(facts), tl.load(facts + 1), tl.load(facts + 2)
    tile = tl.program_id(0)
    at = tile * 2048 + tl.arange(0, 2048)
    valid = at < size
    d, bad = residual(x, at, valid, eps, inverse, width, nx, ny, nz, mx, sx, my, sy, mz, sz, DIMENSIONS, WIDE)
    inside = (d > -radius) & (d < radius)
    tl.store(codes + at, tl.where(inside, d + radius, 0).to(tl.int16), mask=valid)
    tl.store(outliers + tile, tl.sum((valid & ~inside).to(tl.int32), axis=0))
    tl.store(violators + tile, tl.sum(bad.to(tl.int32), axis=0))


@triton.jit
def histogram(codes, counts, size, BINS: tl.constexpr, BLOCK: tl.constexpr, ROUNDS: tl.constexpr):
    """Adds how often each code occurs; a place beyond the last one counts as code 0."""
    total = tl.zeros([BINS], tl.int32)
    for r in range(ROUNDS):
        at = (tl.program_id(0) * ROUNDS + r) * BLOCK + tl.arange(0, BLOCK)
        total += tl.histogram(tl.load(codes + at, mask=at < size, other=0).to(tl.int32) & 0xFFFF, BINS)
    tl.atomic_add(counts + tl.arange(0, BINS), total, sem="relaxed")


@triton.jit
def _entry(codes, entries, at, size):
    code = tl.load(codes + at, mask=at < size, other=0).to(tl.int32) & 0xFFFF
    return tl.load(entries + code, mask=at < size, other=0)


@triton.jit
def count_words(codes, entries, sizes, size, CHUNK: tl.constexpr):
    """Counts the 32-bit words that each chunk takes."""
    chunk = tl.program_id(0)
    bits = tl.sum(_entry(codes, entries, chunk * CHUNK + tl.arange(0, CHUNK), size) & 31, axis=0)
    tl.store(sizes + chunk, (bits + 31) // 32)


@triton.jit
def pack(codes, entries, starts, bits, size, LANES: tl.constexpr, EACH: tl.constexpr):
    """Writes the bits of one chunk into words that are zero: a lane takes EACH codes from where the lanes before it end."""
    chunk = tl.program_id(0)
    first = (chunk * LANES + tl.arange(0, LANES)) * EACH
    own = tl.zeros([LANES], tl.int32)
    for k in range(EACH):
        own += _entry(codes, entries, first + k, size) & 31
    begin = tl.cumsum(own, axis=0) - own
    word = bits + tl.load(starts + chunk) + begin // 32
    have = begin % 32
    held = tl.zeros([LANES], tl.uint64)
    for k in range(EACH):
        entry = _entry(codes, entries, first + k, size)
        have += entry & 31
        # The shift is made in two steps, because a shift by 64 is not defined and a lane that has nothing yet would ask for it.
        held |= ((entry >> 5).to(tl.uint64) << (63 - have).to(tl.uint64)) << 1
        full = have >= 32
        tl.atomic_or(word, (held >> 32).to(tl.uint32).to(tl.int32, bitcast=True), mask=full, sem="relaxed")
        held = tl.where(full, held << 32, held)
        have -= tl.where(full, 32, 0)
        word += full.to(tl.int32)
    tl.atomic_or(word, (held >> 32).to(tl.uint32).to(tl.int32, bitcast=True), mask=held != 0, sem="relaxed")


@triton.jit
def unpack(bits, starts, ends, firsts, counts, tables, look, longer, codes, wrong, chunks, LANES: tl.constexpr):
    """Decodes LANES chunks, one per lane; sets `wrong` where bits are no code or the words are not as many as the codes take."""
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    inside = lane < chunks
    begin = tl.load(starts + lane, mask=inside, other=0)
    end = tl.load(ends + lane, mask=inside, other=0)
    out = codes + tl.load(firsts + lane, mask=inside, other=0)
    count = tl.load(counts + lane, mask=inside, other=0)
    table = tl.load(tables + lane, mask=inside, other=0)
    look += table * 4096
    longer += table * 65536
    at = begin
    held = tl.zeros([LANES], tl.uint64)
    have = tl.zeros([LANES], tl.int32)
    used, done = have, have
    good = count > 0
    for i in range(tl.max(count, axis=0)):
        good = good & (i < count)
        empty = good & (have < 16)
        word = tl.load(bits + at, mask=empty & (at < end), other=0).to(tl.uint32, bitcast=True).to(tl.uint64)
        held |= word << tl.where(empty, 32 - have, 0).to(tl.uint64)
        have += tl.where(empty, 32, 0)
        at += empty.to(tl.int32)
        entry = tl.load(look + (held >> 52).to(tl.int32), mask=good, other=0)
        entry = tl.where(entry != 0, entry, tl.load(longer + (held >> 48).to(tl.int32), mask=good & (entry == 0), other=0))
        good = good & (entry != 0)
        tl.store(out + i, (entry >> 5).to(tl.int16), mask=good)
        length = tl.where(good, entry & 31, 0)
        held = held << length.to(tl.uint64)
        have -= length
        used += length
        done += good.to(tl.int32)
    tl.store(wrong + lane, ((done != count) | ((used + 31) // 32 != end - begin)).to(tl.int32), mask=inside)
