"""The stage `rze` leaves out zero bytes and keeps a bitmap of where they were, whose own zero bytes are left out as well.

The LC framework has stages of that name (PFPL, 2025).

Layout. The words' bytes, little-endian. `kept`: those that are not zero. The bitmap has one bit per byte, lowest first, set where the
byte is kept; `map`: its bytes that are not zero; `top`: a bitmap of those, stored whole. `length`: two int64, the bytes and the item
size of the words.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError

from .stage import Context, Port, Stage


@dataclass(frozen=True)
class Rze(Stage):
    """Zero-byte elimination with a bitmap of two levels."""

    name = "rze"
    inputs = (Port("planes", "words"),)
    outputs = (Port("top", "bytes"), Port("map", "bytes"), Port("kept", "bytes"), Port("length", "ints"))

    def forward(self, ctx: Context, *, planes: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns the bytes that are not zero, and where they stand."""
        octets = np.ascontiguousarray(planes).view(np.uint8)
        bitmap = np.packbits(octets != 0, bitorder="little")
        top = np.packbits(bitmap != 0, bitorder="little")
        length = np.array([octets.size, planes.dtype.itemsize], np.int64)
        return {"top": top, "map": bitmap[bitmap != 0], "kept": octets[octets != 0], "length": length}

    def inverse(self, ctx: Context, *, top: np.ndarray, map: np.ndarray, kept: np.ndarray, length: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns the words."""
        size, item = (int(v) for v in length) if length.size == 2 else (-1, 0)
        if not 0 <= size <= 8 * (ctx.size + 4096) or item not in (2, 4) or size % item:
            raise InputError(f"zero bytes: found a length of {size}; expected at most {8 * (ctx.size + 4096)}")
        bitmap = _filled(_ones(top, -(-size // 8), "top"), map, "map")
        octets = _filled(_ones(bitmap, size, "map"), kept, "kept")
        return {"planes": octets.view("<u2" if item == 2 else "<u4")}


def _ones(bitmap: np.ndarray, count: int, name: str) -> np.ndarray:
    if bitmap.size != -(-count // 8):
        raise InputError(f"zero bytes: found {bitmap.size} bytes of {name}; expected {-(-count // 8)}")
    return np.unpackbits(bitmap, count=count, bitorder="little").astype(bool)


def _filled(where: np.ndarray, values: np.ndarray, name: str) -> np.ndarray:
    if int(np.count_nonzero(where)) != values.size:
        raise InputError(f"zero bytes: found {values.size} of {name}; the bitmap asks for {int(np.count_nonzero(where))}")
    out = np.zeros(where.size, np.uint8)
    out[where] = values
    return out
