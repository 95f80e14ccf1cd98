"""What the functions of the case `here` do: hash, multiply matrices, wait, touch memory."""

from __future__ import annotations

import hashlib
import time


def digest(rounds: int) -> str:
    """Hash on one core, `rounds` times 64 kB."""
    data = b"x" * 65536
    for _ in range(rounds):
        data = hashlib.sha256(data).digest() * 2048
    return data[:8].hex()


def product(n: int, times: int) -> float:
    """Multiply matrices [n, n], which NumPy's library does with a thread per core."""
    import numpy as np

    a = np.ones((n, n))
    for _ in range(times):
        b = a @ a
    return float(b[0, 0])


def rest(seconds: float) -> float:
    """Wait without a core."""
    time.sleep(seconds)
    return seconds


def touch(megabytes: int, times: int) -> int:
    """Write to memory, `times` over."""
    import numpy as np

    block = np.zeros(megabytes << 17)
    for i in range(times):
        block[::512] = i
        block += 1.0
    return len(block)
