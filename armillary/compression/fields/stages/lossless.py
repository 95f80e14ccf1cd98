"""The stage `zstd` is a second, lossless pass over every section; `store` keeps codes as they are.

Layout of a section after `zstd`: one byte that names the dtype it had (its place in `DTYPES`), then a Zstandard frame that carries its
content size. Layout of `store`: `stored`, the codes as uint16.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.parameters import parameter

from .stage import Context, Port, Stage

#: Zstandard's densest block makes 128 KiB of four bytes.
BLOCK = 1 << 17
DTYPES = ("<f4", "<f8", "<u2", "<u4", "<i4", "<i8", "|u1")


@dataclass(frozen=True)
class Zstd(Stage):
    """Applies Zstandard (RFC 8878, 2021) to each section by itself."""

    level: int = parameter(3, "compression level", range=(1, 22))

    name = "zstd"
    every_port = True

    def forward(self, ctx: Context, **arrays: np.ndarray) -> dict[str, np.ndarray]:
        """Returns each section as a frame."""
        found = {}
        for name, array in arrays.items():
            kind, frame = framed(array, self.level)
            found[name] = np.frombuffer(bytes([kind]) + frame, np.uint8)
        return found

    def inverse(self, ctx: Context, **arrays: np.ndarray) -> dict[str, np.ndarray]:
        """Returns each section as it was."""
        import zstandard

        # All sections together: no stage makes more bytes of a value.
        most = 32 * ctx.size + (1 << 20)
        found = {}
        for name, array in arrays.items():
            if array.dtype != np.uint8 or not array.size or array[0] >= len(DTYPES):
                raise InputError(f"section {name}: found no Zstandard section")
            dtype = np.dtype(DTYPES[array[0]])
            frame = array[1:].data
            if array.size == 1:
                found[name] = np.zeros(0, dtype)
                continue
            try:
                size = zstandard.frame_content_size(frame)
                if not 0 <= size <= min(most, BLOCK * (array.size // 4 + 1)) or size % dtype.itemsize:
                    raise InputError(f"section {name}: found a frame of {size} bytes; expected at most {most}, whole items")
                most -= size
                plain = zstandard.ZstdDecompressor().decompress(frame, max_output_size=size)
            except zstandard.ZstdError as error:
                raise InputError(f"section {name}: {error}") from None
            if len(plain) != size:
                raise InputError(f"section {name}: found {len(plain)} bytes; expected {size}")
            found[name] = np.frombuffer(plain, dtype).copy()
        return found


def framed(array: np.ndarray, level: int) -> tuple[int, bytes]:
    """Returns the place of an array's dtype in `DTYPES`, and its bytes as a frame; no frame where it is empty."""
    import zstandard

    packer = zstandard.ZstdCompressor(level=level, write_content_size=True)
    frame = packer.compress(np.ascontiguousarray(array).view(np.uint8).data) if array.size else b""
    return DTYPES.index(array.dtype.str), frame


@dataclass(frozen=True)
class Store(Stage):
    """Stores codes as they are, which shows what a predictor gives."""

    name = "store"
    inputs = (Port("codes", "codes"),)
    outputs = (Port("stored", "codes"),)

    def forward(self, ctx: Context, *, codes: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns the codes."""
        return {"stored": codes}

    def inverse(self, ctx: Context, *, stored: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns the codes."""
        return {"codes": stored}
