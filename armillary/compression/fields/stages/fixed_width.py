"""The stage `fixed-width` packs 32 codes at a time in as many bits as the largest of them needs (as cuSZp does, SC 2023).

Layout. Codes become zigzag residuals. `widths`: one byte per block of 32 codes (the last one filled with residual 0): the bits of its
largest, 0 for none. `words`: uint32, one per bit plane from the lowest, bit i from code i. `count`: one int64, the number of codes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop
from armillary.parameters import parameter

from .slabs import each, pieces
from .stage import Context, Port, Stage

BLOCK = 32
_PIECE = 1 << 12


@dataclass(frozen=True)
class FixedWidth(Stage):
    """Packs blocks of 32 codes, each at a width of its own."""

    centre: int = parameter(512, "the code of residual 0", range=(0, 65535))

    name = "fixed-width"
    inputs = (Port("codes", "codes"),)
    outputs = (Port("widths", "bytes"), Port("words", "words"), Port("count", "ints"))

    def forward(self, ctx: Context, *, codes: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns widths and words."""
        found = each(lambda a, b: _pack(codes, a, b, self.centre), pieces(-(-codes.size // BLOCK), _PIECE), ctx.threads)
        widths = np.concatenate([f[0] for f in found]) if found else np.zeros(0, np.uint8)
        words = np.concatenate([f[1] for f in found]) if found else np.zeros(0, np.uint32)
        return {"widths": widths, "words": words, "count": np.array([codes.size], np.int64)}

    def inverse(self, ctx: Context, *, widths: np.ndarray, words: np.ndarray, count: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns the codes."""
        size = int(count[0]) if count.size == 1 else -1
        if (
            not 0 <= size <= ctx.size
            or widths.size != -(-size // BLOCK)
            or (widths.size and int(widths.max()) > 16)
            or words.dtype != np.uint32
        ):
            raise InputError(f"fixed-width blocks: found {widths.size} for {size} codes of {ctx.size} values")
        ends = np.concatenate([[0], widths.astype(np.int64).cumsum()])
        if ends[-1] != words.size:
            raise InputError(f"fixed-width blocks: found {words.size} words; the widths ask for {ends[-1]}")
        codes = np.empty(size, np.uint16)
        each(lambda a, b: _unpack(widths, words, ends[a], codes, a, b, self.centre), pieces(widths.size, _PIECE), ctx.threads)
        return {"codes": codes}


@loop
def _pack(codes, first, last, centre):
    widths = np.zeros(last - first, np.uint8)
    words, at = np.empty((last - first) * 16, np.uint32), 0
    block = np.zeros(BLOCK, np.uint32)
    for b in range(first, last):
        start, stop = b * BLOCK, min(codes.size, (b + 1) * BLOCK)
        block[:] = 0
        every = np.uint32(0)
        for i in range(stop - start):
            d = np.int16(codes[start + i] - centre)
            block[i] = np.uint32(np.uint16((d << 1) ^ (d >> 15)))
            every |= block[i]
        width = 0
        while every:
            width += 1
            every >>= np.uint32(1)
        widths[b - first] = width
        for p in range(width):
            plane = np.uint32(0)
            for i in range(BLOCK):
                plane |= ((block[i] >> np.uint32(p)) & np.uint32(1)) << np.uint32(i)
            words[at] = plane
            at += 1
    return widths, words[:at].copy()


@loop
def _unpack(widths, words, at, codes, first, last, centre):
    block = np.zeros(BLOCK, np.uint32)
    for b in range(first, last):
        start, stop = b * BLOCK, min(codes.size, (b + 1) * BLOCK)
        block[:] = 0
        for p in range(np.int64(widths[b])):
            plane = words[at]
            at += 1
            for i in range(BLOCK):
                block[i] |= ((plane >> np.uint32(i)) & np.uint32(1)) << np.uint32(p)
        for i in range(stop - start):
            z = np.int64(block[i])
            codes[start + i] = np.uint16(((z >> 1) ^ -(z & 1)) + centre)
    return 0
