"""Quantisation and Lorenzo residuals on a device, with the arithmetic of `quantise` and `lorenzo` on the host, bit for bit.

Launched with `enable_fp_fusion=False`: a fused multiply-add would round other values than the host does. Neighbours are quantised again
from x, so that no program waits for another.
"""

from __future__ import annotations

import triton
import triton.language as tl

#: Options of every launch that computes with float64.
EXACT = {"enable_fp_fusion": False}


@triton.jit
def divided(n, multiplier, shift):
    """Returns n // d for 0 ≤ n < 2^31, with `multiplier` and `shift` of `divisor(d)`."""
    return (tl.umulhi(n.to(tl.uint32) << 1, multiplier.to(tl.uint32)) >> shift).to(tl.int32)


def divisor(d: int) -> tuple[int, int]:
    """Returns what `divided` takes: ⌈2^(31+s)/d⌉ and s = ⌈log2 d⌉; a product and a shift instead of a division."""
    shift = (d - 1).bit_length()
    return -(-(1 << (31 + shift)) // d), shift


@triton.jit
def rounded(value, inverse, WIDE: tl.constexpr):
    """Returns q, q as float64 and whether |q| is below the limit; q is 0 where it is not."""
    v = value * inverse
    if WIDE:
        size = tl.abs(v)
        # Adding and taking away 2^52 leaves an integer, halves to even; larger values are integers already.
        whole = tl.where(size < 4503599627370496.0, (size + 4503599627370496.0) - 4503599627370496.0, size)
        inside = whole < 4611686018427387904.0
        r = tl.where(inside, tl.where(v < 0.0, -whole, whole), 0.0)
        q = r.to(tl.int64)
    else:
        # 1.5·2^52 puts the integer into the lowest bits of the sum, negative ones as two's complement.
        shifted = v + 6755399441055744.0
        r = shifted - 6755399441055744.0
        inside = tl.abs(r) < 1073741824.0
        r = tl.where(inside, r, 0.0)
        q = tl.where(inside, shifted.to(tl.int64, bitcast=True), 0).to(tl.int32)
    return q, r, inside


@triton.jit
def neighbour(x, at, there, inverse, WIDE: tl.constexpr):
    """Returns q of another point; 0 where there is none."""
    q, _, _ = rounded(tl.load(x + at, mask=there, other=0.0).to(tl.float64), inverse, WIDE)
    return tl.where(there, q, 0)


@triton.jit
def less(a, b):
    """Returns a − b, which may wrap around."""
    return tl.sub(a, b, sanitize_overflow=False)


@triton.jit
def residual(x, at, valid, eps, inverse, width, nx, ny, nz, mx, sx, my, sy, mz, sz, DIMENSIONS: tl.constexpr, WIDE: tl.constexpr):
    """Returns the Lorenzo residual of the values at `at`, and whether they are violators; extents (…, nz, ny, nx)."""
    source = tl.load(x + at, mask=valid, other=0.0)
    value = source.to(tl.float64)
    q, r, inside = rounded(value, inverse, WIDE)
    back = (width * r).to(source.dtype).to(tl.float64)
    bad = valid & ~(inside & (tl.abs(value - back) <= eps))
    line = divided(at, mx, sx)
    left = valid & (at - line * nx > 0)
    d = less(q, neighbour(x, at - 1, left, inverse, WIDE))
    if DIMENSIONS > 1:
        plane = divided(line, my, sy)
        up = valid & (line - plane * ny > 0)
        above = less(neighbour(x, at - nx, up, inverse, WIDE), neighbour(x, at - nx - 1, up & left, inverse, WIDE))
        d = less(d, above)
        if DIMENSIONS > 2:
            back_there = valid & (plane - divided(plane, mz, sz) * nz > 0)
            far = at - nx * ny
            behind = less(neighbour(x, far, back_there, inverse, WIDE), neighbour(x, far - 1, back_there & left, inverse, WIDE))
            both = back_there & up
            corner = less(neighbour(x, far - nx, both, inverse, WIDE), neighbour(x, far - nx - 1, both & left, inverse, WIDE))
            d = less(d, less(behind, corner))
    return d, bad


@triton.jit
def spot(tile, item_tiles, piece_tiles, item_size, piece_size):
    """Returns where the piece of a tile starts, how many values it has, and the tile's first value within it.

    Prediction starts anew in each piece, and a tile has values of one piece alone: items (of a batch) of pieces of tiles.
    """
    item = tile // item_tiles
    rest = tile - item * item_tiles
    piece = rest // piece_tiles
    before = piece * piece_size
    return item * item_size + before, tl.minimum(item_size - before, piece_size), (rest - piece * piece_tiles) * 2048


@triton.jit
def ones(v):
    """Returns how many of the lowest 16 bits of `v` are set."""
    v = v - ((v >> 1) & 0x5555)
    v = (v & 0x3333) + ((v >> 2) & 0x3333)
    v = (v + (v >> 4)) & 0x0F0F
    return (v + (v >> 8)) & 0x1F
