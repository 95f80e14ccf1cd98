"""CRC-32C (Castagnoli), the checksum of the container: google-crc32c where it is installed, else eight table look-ups at a time.

Polynomial 0x1EDC6F41, reflected, as in RFC 3720 (iSCSI).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

import numpy as np
from numba import njit

_REFLECTED = 0x82F63B78


@functools.cache
def _tables() -> np.ndarray:
    tables = np.zeros((8, 256), np.uint32)
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = np.where(crc & 1, (crc >> 1) ^ np.uint32(_REFLECTED), crc >> 1).astype(np.uint32)
    tables[0] = crc
    for k in range(1, 8):
        tables[k] = tables[0][tables[k - 1] & 0xFF] ^ (tables[k - 1] >> 8)
    return tables


@njit(nogil=True, cache=True)
def _update(crc, data, tables):
    n = data.size
    i = 0
    while i + 8 <= n:
        low = crc ^ (np.uint32(data[i]) | np.uint32(data[i + 1]) << 8 | np.uint32(data[i + 2]) << 16 | np.uint32(data[i + 3]) << 24)
        crc = np.uint32(
            tables[7, low & 0xFF] ^ tables[6, (low >> 8) & 0xFF] ^ tables[5, (low >> 16) & 0xFF] ^ tables[4, (low >> 24) & 0xFF]
            ^ tables[3, data[i + 4]] ^ tables[2, data[i + 5]] ^ tables[1, data[i + 6]] ^ tables[0, data[i + 7]]
        )  # fmt: skip
        i += 8
    while i < n:
        crc = np.uint32(tables[0, (crc ^ data[i]) & 0xFF] ^ (crc >> 8))
        i += 1
    return crc


def crc32c_tables(data: bytes | memoryview) -> int:
    """CRC-32C by our own table kernel."""
    crc = _update(np.uint32(0xFFFFFFFF), np.frombuffer(data, np.uint8), _tables())
    return int(crc) ^ 0xFFFFFFFF


@functools.cache
def _fastest() -> Callable[[bytes], int]:
    if find_spec("google_crc32c") is None:
        return crc32c_tables
    library = import_module("google_crc32c")
    return lambda data: int(library.value(bytes(data)))


def crc32c(data: bytes | memoryview) -> int:
    """CRC-32C of some bytes."""
    return _fastest()(data)  # type: ignore[arg-type]
