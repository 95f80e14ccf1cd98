"""Callables that a worker process can import."""

from __future__ import annotations

import hashlib
import time


def digest(rounds: int) -> str:
    """Serial work on one core."""
    data = b"x" * 65536
    for _ in range(rounds):
        data = hashlib.sha256(data).digest() * 2048
    return data[:8].hex()


def rest(seconds: float) -> float:
    """Waits without a core."""
    time.sleep(seconds)
    return seconds


def touch(megabytes: int) -> int:
    """Touches memory."""
    return len(bytearray(megabytes << 20))


def fail() -> None:
    """Raises."""
    raise ValueError("no")


def product(n: int, times: int) -> float:
    """A matrix product, which NumPy's library runs on several threads."""
    import numpy as np

    a = np.ones((n, n))
    for _ in range(times):
        b = a @ a
    return float(b[0, 0])
