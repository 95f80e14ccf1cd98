"""Systematic Reed-Solomon codes: k data blocks and m parity blocks, of which any k give all the others back.

The generator G has the identity on top, so data is stored as it is. There are two ways to make the rows below it, and with both every k
rows are independent: `vandermonde` takes V[i, j] = p_i^j with distinct points p_i and multiplies by the inverse of its first k rows
(Plank 1997, corrected 2005); `cauchy` takes 1 / (x_i + y_j) with x_i, y_j all distinct (Blömer and others 1995).

Block l from helpers S, |S| = k, is block_l = sum over S of c_i·block_i with c = row l of G times the inverse of G_S. Each helper
multiplies its own bytes by its own coefficient, and everyone else only XORs, so any vertex on the way, even a switch, may add up the
streams that pass.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown

from . import galois

MATRICES = ("vandermonde", "cauchy")


@functools.cache
def generator(k: int, m: int, matrix: str = "vandermonde") -> np.ndarray:
    """The (k + m) by k generator: the identity, then the parity rows. The array is read-only."""
    if matrix == "vandermonde":
        # The points 0, 1, 2, 4, 8, … are those of zfec, so that both make the same stripes.
        powers = np.arange(k)
        tall = galois.EXPONENT[(np.arange(-1, k + m - 1)[:, None] * powers[None, :]) % 255].astype(np.uint8)
        tall[0] = powers == 0
        found = galois.matrix_product(tall, galois.inverse(tall[:k]))
    elif matrix == "cauchy":
        rows = galois.INVERSES[np.arange(k, k + m)[:, None] ^ np.arange(k)[None, :]]
        found = np.concatenate([np.eye(k, dtype=np.uint8), rows])
    else:
        raise unknown("matrix", str(matrix), MATRICES)
    found.flags.writeable = False
    return found


@dataclass(frozen=True)
class ReedSolomon:
    """A code of k data and m parity blocks over GF(2^8), polynomial 0x11D; `matrix` is "vandermonde" or "cauchy"."""

    k: int
    m: int
    matrix: str = "vandermonde"

    def __post_init__(self) -> None:
        for name, value in (("k", self.k), ("m", self.m)):
            if isinstance(value, bool) or not isinstance(value, int) or value < (1 if name == "k" else 0):
                raise InputError(f"{name}: found {value!r}; expected a whole number from {1 if name == 'k' else 0}")
        if self.k + self.m > 255:
            raise InputError(f"k + m: found {self.k} + {self.m} = {self.k + self.m}; expected at most 255")
        if self.matrix not in MATRICES:
            raise unknown("matrix", str(self.matrix), MATRICES)

    @property
    def n(self) -> int:
        """The number of blocks of a stripe."""
        return self.k + self.m

    @property
    def generator(self) -> np.ndarray:
        """uint8[n, k] with the identity on top."""
        return generator(self.k, self.m, self.matrix)

    def encode(self, data: Any) -> np.ndarray:
        """The m parity blocks, uint8[m, length], of k data blocks of one length (an array uint8[k, length] or k buffers)."""
        blocks = _blocks(data, self.k, "data blocks")
        found = np.empty((self.m, blocks.shape[1]), np.uint8)
        for row, out in zip(self.generator[self.k :], found):
            galois.combine(row, blocks, out)
        return found

    def coefficients(self, lost: int, helpers: Sequence[int]) -> np.ndarray:
        """uint8[k]: the coefficients by which k helpers multiply their blocks so that the XOR of the products is block `lost`."""
        return _coefficients(self.k, self.m, self.matrix, self._index(lost), tuple(self._helpers(helpers)))

    def decode(self, blocks: Mapping[int, Any], wanted: Sequence[int] | None = None) -> dict[int, np.ndarray]:
        """The `wanted` blocks (by default all that are missing) from any k or more blocks that are there, by index.

        Fewer than k blocks raise an InputError, because no code of this size survives that loss.
        """
        there = sorted(self._index(i) for i in blocks)
        missing = [i for i in range(self.n) if i not in blocks] if wanted is None else [self._index(i) for i in wanted]
        if len(there) < self.k:
            raise InputError(f"found {len(there)} of {self.n} blocks ({there}); expected at least k = {self.k}")
        helpers = there[: self.k]
        sources = _blocks([blocks[i] for i in helpers], self.k, "blocks")
        held = {i: _bytes(blocks[i]) for i in missing if i in blocks}
        return {i: held[i] if i in held else galois.combine(self.coefficients(i, helpers), sources) for i in missing}

    def _index(self, index: Any) -> int:
        if isinstance(index, bool) or not hasattr(index, "__index__") or not 0 <= index.__index__() < self.n:
            raise InputError(f"block {index!r} of a stripe; expected 0 to {self.n - 1}")
        return int(index.__index__())

    def _helpers(self, helpers: Sequence[int]) -> list[int]:
        found = [self._index(i) for i in helpers]
        if len(found) != self.k or len(set(found)) != self.k:
            raise InputError(f"helpers: found {found}; expected k = {self.k} different blocks")
        return found


@functools.lru_cache(maxsize=1 << 16)
def _inverted(k: int, m: int, matrix: str, helpers: tuple[int, ...]) -> np.ndarray:
    return galois.inverse(generator(k, m, matrix)[list(helpers)])


@functools.lru_cache(maxsize=1 << 17)
def _coefficients(k: int, m: int, matrix: str, lost: int, helpers: tuple[int, ...]) -> np.ndarray:
    found = galois.matrix_product(generator(k, m, matrix)[lost][None, :], _inverted(k, m, matrix, helpers))[0]
    found.flags.writeable = False
    return found


def _bytes(block: Any) -> np.ndarray:
    return np.frombuffer(block, np.uint8) if isinstance(block, bytes | bytearray | memoryview) else np.asarray(block, np.uint8).reshape(-1)


def _blocks(data: Any, count: int, what: str) -> np.ndarray:
    if isinstance(data, np.ndarray) and data.ndim == 2:
        rows: Any = data
    else:
        rows = [_bytes(block) for block in data]
        if len({len(row) for row in rows}) > 1:
            raise InputError(f"{what}: found lengths {sorted({len(row) for row in rows})}; expected one length")
    if len(rows) != count:
        raise InputError(f"{what}: found {len(rows)}; expected {count}")
    return np.ascontiguousarray(rows if isinstance(rows, np.ndarray) else np.stack(rows), np.uint8)
