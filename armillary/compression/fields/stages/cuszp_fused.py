"""The stage `cuszp-fused` quantises, differences and packs blocks of 32 values to a fixed width in one kernel.

It is a rival of the modular pipelines. cuSZp: An Ultra-Fast GPU Error-Bounded Lossy Compression Framework with Optimized End-to-End
Performance, SC 2023; here it is for CPUs, with the guarantee of this arena.

Layout. `widths`: one byte per block of 32 values in C order: bits of its largest |difference|, 0 for a block of zeros, which is all it
costs. `words`: uint32; for each other block first the signs (bit i set where value i is negative), then one word per bit plane from the
lowest. The first difference of a block is against 0. `raw_index`, `raw`: as in `lorenzo`; |q| ≥ 2^30 is raw.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop

from .lorenzo import check_raw
from .quantise import NARROW, collect_violators, quantise_row, room
from .slabs import each, pieces
from .stage import Context, Port, Stage

BLOCK = 32
_PIECE = 1 << 12


@dataclass(frozen=True)
class CuszpFusedStage(Stage):
    """Packs blocks of 32 values to the width of their largest difference."""

    name = "cuszp-fused"
    inputs = (Port("data", "float"), Port("bound", "float64"))
    outputs = (Port("widths", "bytes"), Port("words", "words"), Port("raw_index", "index"), Port("raw", "float"))

    def forward(self, ctx: Context, *, data: np.ndarray, bound: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns widths, words and violators."""
        eps = float(bound[0])
        found = each(lambda a, b: _encode(data, a, b, eps, 0.5 / eps), pieces(-(-data.size // BLOCK), _PIECE), ctx.threads)
        widths, words, index, raw = (np.concatenate([f[i] for f in found]) for i in range(4))
        return {"widths": widths, "words": words, "raw_index": index, "raw": raw}

    def inverse(  # type: ignore[override]
        self, ctx: Context, *, widths: np.ndarray, words: np.ndarray, raw_index: np.ndarray, raw: np.ndarray, bound: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Returns the values, within the bound."""
        check_raw(ctx, raw_index, raw)
        blocks = -(-ctx.size // BLOCK)
        if widths.dtype != np.uint8 or widths.size != blocks or words.dtype != np.uint32 or (widths.size and int(widths.max()) > 32):
            raise InputError(f"fixed-width blocks: found {widths.size}; expected {blocks} of at most 32 bits")
        ends = np.concatenate([[0], (widths.astype(np.int64) + (widths > 0)).cumsum()])
        if ends[-1] != words.size:
            raise InputError(f"fixed-width blocks: found {words.size} words; the widths ask for {ends[-1]}")
        out = np.empty(ctx.size, raw.dtype)
        each(lambda a, b: _decode(widths, words, ends[a], out, a, b, 2.0 * float(bound[0])), pieces(blocks, _PIECE), ctx.threads)
        out[raw_index] = raw
        return {"data": out}


@loop
def _encode(data, first, last, eps, inverse):
    widths = np.zeros(last - first, np.uint8)
    words, at = np.empty((last - first) * 33, np.uint32), 0
    index, raw, spoilt = np.empty(16, np.uint32), np.empty(16, data.dtype), 0
    q = np.zeros(BLOCK, np.int32)
    sizes = np.zeros(BLOCK, np.uint32)
    for b in range(first, last):
        start, stop = b * BLOCK, min(data.size, (b + 1) * BLOCK)
        if stop - start < BLOCK:
            q[:] = 0
        bad = quantise_row(data[start:stop], q, eps, inverse, NARROW)
        if stop - start < BLOCK and stop > start:
            q[stop - start :] = q[stop - start - 1]
        signs, every = np.uint32(0), np.uint32(0)
        for i in range(BLOCK):
            d = np.int64(q[i]) - (np.int64(q[i - 1]) if i else np.int64(0))
            signs |= np.uint32(np.int64(d < 0) << i)
            sizes[i] = np.uint32(abs(d))
            every |= sizes[i]
        width = 0
        while every:
            width += 1
            every >>= np.uint32(1)
        widths[b - first] = width
        if width:
            words[at] = signs
            for p in range(width):
                plane = np.uint32(0)
                for i in range(BLOCK):
                    plane |= ((sizes[i] >> np.uint32(p)) & np.uint32(1)) << np.uint32(i)
                words[at + 1 + p] = plane
            at += 1 + width
        if bad:
            index, raw = room(index, spoilt, BLOCK), room(raw, spoilt, BLOCK)
            spoilt = collect_violators(data[start:stop], start, index, raw, spoilt, eps, inverse, NARROW)
    return widths, words[:at].copy(), index[:spoilt].copy(), raw[:spoilt].copy()


@loop
def _decode(widths, words, at, out, first, last, step):
    sizes = np.zeros(BLOCK, np.uint32)
    for b in range(first, last):
        start, stop = b * BLOCK, min(out.size, (b + 1) * BLOCK)
        width = np.int64(widths[b])
        if width == 0:
            out[start:stop] = 0
            continue
        signs = words[at]
        sizes[:] = 0
        for p in range(width):
            plane = words[at + 1 + p]
            for i in range(BLOCK):
                sizes[i] |= ((plane >> np.uint32(i)) & np.uint32(1)) << np.uint32(p)
        at += 1 + width
        q = np.int64(0)
        for i in range(stop - start):
            d = np.int64(sizes[i])
            q += -d if (signs >> np.uint32(i)) & np.uint32(1) else d
            out[start + i] = step * np.float64(q)
    return 0
