"""The secret shifts r₁ … rₙ: stored, one random scalar per base, or computed again from a seed whenever they are needed."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from armillary.kernels import kernel, part
from armillary.trust.outsourcing.group.bases import read_only
from armillary.trust.outsourcing.group.scalars import reduced_words
from armillary.trust.outsourcing.summing.inner import inner_product

Words = npt.NDArray[np.uint64]

SEED_BYTES = 32
BLOCK = 4096


class Shifts(Protocol):
    """Secret shifts, by index."""

    def __len__(self) -> int: ...

    def words(self, start: int, stop: int) -> Words:
        """(stop − start, 4) words of scalars."""

    def inner(self, x: Words, threads: int = 1) -> Words:
        """⟨x, r⟩ modulo q in four words."""

    @property
    def state_bytes(self) -> int:
        """What a client stores of them."""


@dataclass(frozen=True)
class StoredShifts:
    """One uniformly random scalar per base: nothing is assumed of any hash."""

    kept: Words

    def __post_init__(self) -> None:
        object.__setattr__(self, "kept", read_only(self.kept))

    @classmethod
    def drawn(cls, count: int) -> StoredShifts:
        """Fresh ones from the operating system's generator."""
        kept: Any = np.empty((count, 4), np.uint64)
        for at in range(0, count, BLOCK):
            rows = min(BLOCK, count - at)
            kept[at : at + rows] = reduced_words(np.frombuffer(os.urandom(64 * rows), "<u8").astype(np.uint64).reshape(rows, 8))
        return cls(kept)

    def __len__(self) -> int:
        return len(self.kept)

    def words(self, start: int, stop: int) -> Words:
        """Those from `start` on."""
        return self.kept[start:stop]

    def inner(self, x: Words, threads: int = 1) -> Words:
        """⟨x, r⟩ modulo q in four words."""
        return inner_product(x, self.kept, threads=threads)

    @property
    def state_bytes(self) -> int:
        """32 bytes per base."""
        return 32 * len(self.kept)


@dataclass(frozen=True)
class SeededShifts:
    """rᵢ = BLAKE2b-512(seed, i) modulo q, computed in blocks while they are multiplied."""

    seed: bytes
    count: int

    def __len__(self) -> int:
        return self.count

    def words(self, start: int, stop: int) -> Words:
        """Those from `start` on."""
        return read_only(reduced_words(hashed(self.seed, start, stop)))

    def inner(self, x: Words, threads: int = 1) -> Words:
        """⟨x, r⟩ modulo q in four words, without ever holding more than a block of r."""
        found: Words = np.zeros(4, np.uint64)
        for at in range(0, self.count, BLOCK):
            block = self.words(at, min(self.count, at + BLOCK))
            found = inner_product(x[at : at + BLOCK], block, start=found, threads=threads)
        return found

    @property
    def state_bytes(self) -> int:
        """The seed."""
        return SEED_BYTES


def hashed(seed: bytes, start: int, stop: int) -> Words:
    """BLAKE2b-512 over seed and index (8 bytes, little-endian), as (stop − start, 8) words."""
    found: Any = np.empty((stop - start, 8), np.uint64)
    _hash_all(np.frombuffer(seed, "<u8").astype(np.uint64), np.uint64(start), found, np.empty(16, np.uint64))
    return found


_START = np.array(
    [0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1, 0x510E527FADE682D1, 0x9B05688C2B3E6C1F,
     0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179], np.uint64,
)  # fmt: skip
_ORDER = np.array([
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4], [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13], [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11], [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5], [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
], np.int64)  # fmt: skip
_MESSAGE_BYTES, _LAST, _PARAMETERS = np.uint64(SEED_BYTES + 8), np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0x01010040)
_WORD = np.uint64(64)


@part
def _turned(x, by):
    return x >> by | x << (_WORD - by)


@part
def _mixed(v, a, b, c, d, x, y):
    v[a] = v[a] + v[b] + x
    v[d] = _turned(v[d] ^ v[a], np.uint64(32))
    v[c] = v[c] + v[d]
    v[b] = _turned(v[b] ^ v[c], np.uint64(24))
    v[a] = v[a] + v[b] + y
    v[d] = _turned(v[d] ^ v[a], np.uint64(16))
    v[c] = v[c] + v[d]
    v[b] = _turned(v[b] ^ v[c], np.uint64(63))


@kernel
def _hash_all(seed, start, found, v):
    """One compression per index: the message has 40 bytes, less than the 128 of a block."""
    for i in range(len(found)):
        index = start + np.uint64(i)
        for k in range(8):
            v[k], v[k + 8] = _START[k], _START[k]
        v[0] ^= _PARAMETERS
        v[12] ^= _MESSAGE_BYTES
        v[14] ^= _LAST
        for turn in range(12):
            for step in range(8):
                a, b = _ORDER[turn, 2 * step], _ORDER[turn, 2 * step + 1]
                x = seed[a] if a < 4 else index if a == 4 else np.uint64(0)
                y = seed[b] if b < 4 else index if b == 4 else np.uint64(0)
                # Columns, then diagonals.
                right = step >> 2
                at = step & 3
                _mixed(v, at, 4 + (at + right & 3), 8 + (at + 2 * right & 3), 12 + (at + 3 * right & 3), x, y)
        for k in range(8):
            start_k = _START[k] ^ _PARAMETERS if k == 0 else _START[k]
            found[i, k] = start_k ^ v[k] ^ v[k + 8]
