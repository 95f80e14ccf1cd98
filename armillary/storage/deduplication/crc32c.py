"""CRC-32C (Castagnoli), the checksum of a slot, for many chunks in one call: eight table look-ups a word."""

from __future__ import annotations

import functools

import numpy as np

from ..queue import kernel

POLYNOMIAL = 0x82F63B78


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """The checksum of `data`; RFC 3720 gives 0x8a9136aa for 32 zero bytes."""
    array = np.frombuffer(data, np.uint8)
    return int(crc32c_pieces(array, np.array([len(array)], np.int64))[0])


def crc32c_pieces(data: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Checksums (uint32) of the consecutive pieces of `data` (uint8) that end at `ends` (int64)."""
    out = np.empty(len(ends), np.uint32)
    _pieces(data, ends, _tables(), out)
    return out


@functools.cache
def _tables() -> np.ndarray:
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
        tables[0, byte] = value
    for k in range(1, 8):
        tables[k] = (tables[k - 1] >> 8) ^ tables[0][tables[k - 1] & 0xFF]
    return tables


@kernel
def _pieces(data, ends, tables, out):
    at = 0
    for piece in range(len(ends)):
        end = ends[piece]
        crc = np.uint32(0xFFFFFFFF)
        while at + 8 <= end:
            low = crc ^ (np.uint32(data[at]) | np.uint32(data[at + 1]) << np.uint32(8)
                         | np.uint32(data[at + 2]) << np.uint32(16) | np.uint32(data[at + 3]) << np.uint32(24))  # fmt: skip
            crc = (tables[7, low & np.uint32(0xFF)] ^ tables[6, (low >> np.uint32(8)) & np.uint32(0xFF)]
                   ^ tables[5, (low >> np.uint32(16)) & np.uint32(0xFF)] ^ tables[4, low >> np.uint32(24)]
                   ^ tables[3, data[at + 4]] ^ tables[2, data[at + 5]] ^ tables[1, data[at + 6]] ^ tables[0, data[at + 7]])  # fmt: skip
            at += 8
        while at < end:
            crc = (crc >> np.uint32(8)) ^ tables[0, (crc ^ np.uint32(data[at])) & np.uint32(0xFF)]
            at += 1
        out[piece] = crc ^ np.uint32(0xFFFFFFFF)
