"""Signed digits of public scalars, and the width of window that makes a sum cheapest."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.kernels import kernel

Words = npt.NDArray[np.uint64]

#: Bits of the widest window; digits are int16.
WIDEST = 15
#: Bytes of shifted copies that may be stored per base, those of the base itself included, and of one of them.
COPY_BYTES, STORED_BYTES = 120, 2048


@dataclass(frozen=True)
class Windows:
    """How scalars are cut: `count` digits of `width` bits, summed in `passes` over all bases, each of which has `copies` shifted ones."""

    width: int
    count: int
    passes: int

    @property
    def copies(self) -> int:
        """Stored multiples 2^(width·passes·j) per base."""
        return -(-self.count // self.passes)


def windows_for(terms: int, bits: int, *, copies: int = 1) -> Windows:
    """The cut that needs fewest additions for so many scalars that are not 0, of so many bits.

    One window costs an addition per term and two per bucket, of which there are 2^(width − 1); with `copies` of each base, that many
    windows share their buckets. A digit more than the bits need takes the last carry.
    """
    found = None
    for width in range(2, WIDEST + 1):
        count = max(1, -(-(bits + 1) // width))
        passes = -(-count // copies)
        cost = count * terms + passes * (1 << width)
        if found is None or cost < found[0]:
            found = cost, Windows(width, count, passes)
    assert found is not None
    return found[1]


def extent(scalars: Words) -> tuple[int, int]:
    """(scalars that are not 0, bits of the longest)."""
    if not len(scalars):
        return 0, 0
    joined = np.bitwise_or.reduce(scalars, axis=0)
    bits = max((64 * k + int(word).bit_length() for k, word in enumerate(joined) if word), default=0)
    return int(np.count_nonzero(scalars.any(axis=1))), bits


def cut(scalars: Words, windows: Windows) -> npt.NDArray[np.int16]:
    """Signed digits by (window, term)."""
    digits: Any = np.empty((windows.count, len(scalars)), np.int16)
    _cut(scalars, windows.width, digits)
    return digits


@kernel
def _cut(scalars, width, digits):
    bits, mask = np.uint64(width), (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    half = np.int64(1) << (width - 1)
    for i in range(scalars.shape[0]):
        carry = np.int64(0)
        for w in range(digits.shape[0]):
            at = w * width
            word, shift = at >> 6, np.uint64(at & 63)
            raw = np.uint64(0)
            if word < 4:
                raw = scalars[i, word] >> shift
                if shift + bits > np.uint64(64) and word < 3:
                    raw |= scalars[i, word + 1] << (np.uint64(64) - shift)
            digit = np.int64(raw & mask) + carry
            carry = np.int64(0)
            if digit > half:
                digit -= np.int64(1) << width
                carry = np.int64(1)
            digits[w, i] = digit
