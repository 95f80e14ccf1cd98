"""Multi-scalar multiplication, Σ xᵢ·Pᵢ, over bases that are decoded, and over bases with shifted copies."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.trust.outsourcing.group.bases import Bases, Scalars, as_bases, as_scalars, check_lengths, read_only
from armillary.trust.outsourcing.group.element import Element
from armillary.trust.outsourcing.group.multiples import repeat_shifted
from armillary.trust.outsourcing.group.points import POINT, READY, to_affine

from .buckets import TABLE_ROWS, few, joined, pass_sums
from .digits import COPY_BYTES, STORED_BYTES, Windows, cut, extent, windows_for

Words = npt.NDArray[np.uint64]

#: Terms below which one chain of doublings beats buckets.
FEW = 32
BLOCK = 4096


def msm(points: Bases | Sequence[bytes], scalars: Scalars | Sequence[int] | bytes, *, threads: int = 1) -> Element:
    """Σ xᵢ·Pᵢ: by buckets (Pippenger), whose windows are shared out over `threads`, and by one chain of doublings for fewer than 32 terms.

    points: Bases, or encodings of 32 bytes each. scalars: integers, their concatenated encodings, or (n, 4) words. Not constant in time.
    """
    bases, x = as_bases(points), as_scalars(scalars)
    check_lengths(bases, x)
    return sums_over([bases.ready[None]], x, threads=threads)[0]


def sums_over(tables: Sequence[Words], x: Words, *, windows: Windows | None = None, threads: int = 1) -> list[Element]:
    """Σ xᵢ·Pᵢ for several tables (copies, n, 15) of bases, which share the digits of x."""
    terms, bits = extent(x)
    if windows is None and len(x) < FEW:
        return [_few(table[0], cut(x, Windows(4, max(1, -(-(bits + 1) // 4)), 1))) for table in tables]
    windows = windows or windows_for(terms, bits)
    digits = cut(x, windows)
    return [_buckets(table, digits, windows, threads) for table in tables]


def _few(bases: Words, digits: npt.NDArray[np.int16]) -> Element:
    found: Any = np.empty((1, POINT), np.uint64)
    few(bases, digits, np.empty((max(1, len(bases)), TABLE_ROWS, POINT), np.uint64), found)
    return Element(found[0])


def _buckets(bases: Words, digits: npt.NDArray[np.int16], windows: Windows, threads: int) -> Element:
    sums: Any = np.empty((windows.passes, POINT), np.uint64)
    count, size = max(1, min(threads, windows.passes)), 1 << (windows.width - 1)

    def work(first: int) -> None:
        pass_sums(bases, digits, windows.passes, first, count, np.empty((size, POINT), np.uint64), np.empty(size, np.uint8), sums)

    if count == 1:
        work(0)
    else:
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(work, range(count)))
    found: Any = np.empty((1, POINT), np.uint64)
    joined(sums, windows.width, found)
    return Element(found[0])


class FixedBases:
    """Bases with shifted copies 2^(c·d·j)·Pᵢ, at most 2 KB per base, so that a sum takes d passes of buckets instead of one per window.

    For a few hundred bases d is above 1; from some thousand on it is 1, and no doubling is left.
    """

    def __init__(self, bases: Bases, *, bits: int = 252, most_bytes: int = STORED_BYTES) -> None:
        self.bases = bases
        self.windows = windows_for(len(bases), bits, copies=max(1, most_bytes // COPY_BYTES))
        n, shift = len(bases), self.windows.width * self.windows.passes
        table: Words = np.empty((self.windows.copies, n, READY), np.uint64)
        table[0] = bases.ready
        for copy in range(1, self.windows.copies):
            for at in range(0, n, BLOCK):
                block: Any = np.empty((min(BLOCK, n - at), POINT), np.uint64)
                repeat_shifted(table[copy - 1, at : at + BLOCK], shift, block)
                to_affine(block, np.empty((len(block), 5), np.uint64), table[copy, at : at + BLOCK])
        #: (copies, n, 15)
        self.table = read_only(table)

    def msm(self, scalars: Scalars | Sequence[int] | bytes, *, threads: int = 1) -> Element:
        """Σ xᵢ·Pᵢ over all bases; as `msm` does it where a scalar is longer than the copies reach."""
        x = as_scalars(scalars)
        check_lengths(self.bases, x)
        terms, bits = extent(x)
        plain = windows_for(terms, bits)
        stored = Windows(self.windows.width, max(1, min(self.windows.count, -(-(bits + 1) // self.windows.width))), self.windows.passes)
        cost = stored.count * terms + min(stored.passes, stored.count) * (1 << stored.width)
        if bits + 1 > self.windows.width * self.windows.count or cost >= plain.count * (terms + (1 << plain.width)):
            return sums_over([self.bases.ready[None]], x, threads=threads)[0]
        return sums_over([self.table], x, windows=stored, threads=threads)[0]
