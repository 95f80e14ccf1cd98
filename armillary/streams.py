"""Random numbers that depend on names, not on order.

A stream is a NumPy generator spawned from the study's seed and a few words: the case and the repeat for the work, the unit's
name for a technique. Whoever asks for the same words gets the same numbers: on any worker, in any order, next to any other unit.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def words(*names: str) -> tuple[int, ...]:
    """The first 16 bytes of SHA-256 over the names as four little-endian uint32; each name is closed by a zero byte."""
    digest = hashlib.sha256(b"".join(name.encode() + b"\0" for name in names)).digest()
    return tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))


def stream(seed: int, *names: str) -> np.random.Generator:
    """The generator for these names under this seed."""
    import numpy as np

    return np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(entropy=seed, spawn_key=words(*names))))


def seed32(seed: int, *names: str) -> int:
    """An integer seed in [0, 2**32) for libraries that take one (Numba, torch, Python's random)."""
    return words(str(seed), *names)[0]
