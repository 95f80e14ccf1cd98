"""How a file is cut into chunks, and how each chunk is named.

`fixed` cuts every `chunk` bytes. `fastcdc` cuts by content: a gear hash rolls over the bytes, and a cut falls where its low bits are zero.
It tests one bit more than log2(average) before the centre and one less after it, so lengths concentrate around the average. An insertion
then moves only the cuts near it. A chunk's name is its BLAKE2b digest of 160 bits.

FastCDC: a fast and efficient content-defined chunking approach for data deduplication, USENIX ATC 2016; cuts are those of the PyPI
package fastcdc 1.7.0 (minimum a quarter and maximum eight times the average), whose gear table this is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from armillary.errors import InputError, unknown
from armillary.kernels import kernel, part

CHUNKERS = ("fixed", "fastcdc")
FINGERPRINT_BYTES = 20
#: 256 numbers of 31 bits, eight hex digits each.
_GEAR_HEX = (
    "5c95c078224089892d48a21412842087530f8afb474536b92963b4f144cb738b4ea7403d4d606b6e074ec5d33af39d18726003ca37a62a7451a2f58e7506358e"
    "5d4ab1284d4ae17b41e85924470c36f74741cbe101bb7f30617c1de32b0c3a1f50c48f7321a82d376095ace0419167a03caf49b040cea62d66bc1c66545e1dad"
    "2bfa77cd6e85da245fb0bdc5652cfc293a0ae1ab2837e0f36387b70e131760124362c2bb66d8f4b137fce8342c9cd38621144296627268a8650df5372805d579"
    "3b21ebbd7357ed343f58b5837150ddca7362225e620a60702c5ef5297b522466768b78c04b54e51e75fa07e506a35fc630b710241c8626e1296ad57828d7be2e"
    "1490a05a7cee43bd698b56e309dc01264ed6df6e02c1bfc72a59ad5329c0e4347d6c5278507940a75ef6ba9368b6af1e46537276611bc766155c587d301ba847"
    "2cc9dda70a438e2c0a69d514744c72d34f326b9b7ef342864a0ef8a76ae06ebe669c537212402dcb5feae99d76c7f4a76abdb79c0dfaa03820e2282c730ed48b"
    "069dac2f168ecf3e2610e61f2c512c8e15fb8c065e62bc76695551350adb864c4268f914349ab3aa20edfdb25172798137b4b3d85dd175226b2cbfe45c47cf9f"
    "30fa1ccd23dedb5613d1f50a64eddee70820b0f746e073081e2d1dfd17b06c32250036d8284dbf3468292ee0362ec87c087cb1eb76b46720104130db71966387"
    "482dc43f2388ef25524144e144bd834e448e7da33fa6eaf93cda215c3a500cf3395cb4325195129f43945f8751862ca456ea8ff1201034dc4d328ff57d73a909"
    "6234d37964cfbf9c36f6589a0a2ce98a5fe4d97103bc15c544021d3316c1932b375036141acaf69d3f03b77949e61a031f52d7ea1c6ddd5c062218ce07e7a11a"
    "1905757a7ce00a5349f44f294bcc70b539feea555242cee83ce56b8500b8167246beeccc3ca0ad562396cee878547f406b08089b66a56751781e7e461e2cf856"
    "3bc13591494a4202520494d72d87459a757555b642284cc11f47850775c95dff35ff8dd74e4757ed2e11f88c5e1b5048420e6699226b06954d1679b45a22646f"
    "161d1131125c68d91313e32e4aa8572421dc7ec14ffa29fe729683821ca8eef33f3b1c2839c2fb6c6d76493f7a22a62e789b1c2a16e0cb537deceeeb0dc7e1c6"
    "5c75bf3d52218333106de4d67dc6442265590ff42c02ec3064a9ac6759cab2e94a21d2f30f616e5723b54ee802730aaa2f3c634d7117fc6c01ac6f055a9ed20c"
    "158c4e2a42b699f00c7c14b302bd964115ad56fc1c722f607da1af9123e0dbcb0e93e12b64b2791d440d2476588ea8dd4665a6587446c4181877a7745626407e"
    "7f63bd4632d2dbd83c790f4a772b72396f8b2826677ff6090dc82c1123ffe3542eac53a616139e090afd0dbc2a4d423756a368c7234325e42dce918732e8ea7e"
)
GEAR = np.frombuffer(bytes.fromhex(_GEAR_HEX), ">u4").astype(np.uint32)
BLOCK = 8 << 20


@dataclass(frozen=True)
class Chunker:
    """How bytes are cut: `name` is "fixed" or "fastcdc", `chunk` the size or the average, in bytes.

    For "fastcdc" the least and greatest lengths are chunk/4 and 8 chunk, and `chunk` is a power of two.
    """

    name: str = "fixed"
    chunk: int = 16384

    def __post_init__(self) -> None:
        if self.name not in CHUNKERS:
            raise unknown("chunker", str(self.name), CHUNKERS)
        if isinstance(self.chunk, bool) or not isinstance(self.chunk, int) or not 256 <= self.chunk <= 1 << 26:
            raise InputError(f"chunk: found {self.chunk!r}; expected bytes from 256 to 67108864")
        if self.name == "fastcdc" and self.chunk & (self.chunk - 1):
            raise InputError(f"chunk: found {self.chunk}; expected a power of two for fastcdc")

    @property
    def longest(self) -> int:
        """Bytes of the longest chunk."""
        return self.chunk if self.name == "fixed" else 8 * self.chunk

    def cuts(self, data: bytes | bytearray | memoryview | np.ndarray) -> np.ndarray:
        """Ends of the chunks of `data` (int64, last one is its length); none for no data."""
        array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
        if self.name == "fixed":
            ends = np.arange(self.chunk, len(array) + self.chunk, self.chunk, dtype=np.int64)
            return np.minimum(ends, len(array))
        least, average, most = self.chunk // 4, self.chunk, self.longest
        ends = np.empty(len(array) // least + 1, np.int64)
        bits = average.bit_length() - 1
        masks = np.array([(1 << (bits + 1)) - 1, (1 << (bits - 1)) - 1], np.uint32)
        count = _fastcdc(array, least, _centre(average, least, most), most, masks, GEAR, ends)
        return ends[:count]

    def pieces(self, file: BinaryIO) -> Iterator[tuple[bytes | memoryview, np.ndarray]]:
        """(bytes, ends of the chunks in them) block by block, for files larger than memory; the cuts are those of the whole file."""
        held = b""
        while True:
            read = file.read(BLOCK)
            block = held + read if held else read
            if not read:
                if block:
                    yield block, self.cuts(block)
                return
            # A cut depends on at most `longest` bytes ahead, so chunks that begin before this point end as they would in the whole file.
            ends = self.cuts(block)
            begins = np.concatenate(([0], ends[:-1]))
            sure = int(np.searchsorted(begins, len(block) - self.longest, side="right"))
            if sure:
                yield memoryview(block)[: int(ends[sure - 1])], ends[:sure]
            held = block[int(ends[sure - 1]) if sure else 0 :]


def fingerprint(data: bytes | memoryview) -> bytes:
    """The name of a chunk: BLAKE2b, 160 bits."""
    return hashlib.blake2b(data, digest_size=FINGERPRINT_BYTES).digest()


def _centre(average: int, least: int, most: int) -> int:
    """The length at which the mask changes, which is the average less one and a half times the least."""
    return min(average - min(least + (least + 1) // 2, average), most)


@part
def _hash_until(data, at, barrier, pattern, mask, gear):
    """Rolls on to the first byte in [at, barrier) after which the masked hash is zero; (place after it or barrier, hash, found)."""
    while at < barrier:
        pattern = (pattern >> np.uint32(1)) + gear[data[at]]
        at += 1
        if pattern & mask == np.uint32(0):
            return at, pattern, True
    return at, pattern, False


@kernel
def _fastcdc(data, least, centre, most, masks, gear, ends):
    size, start, count = len(data), 0, 0
    while start < size:
        at = min(start + least, size)
        found = False
        pattern = np.uint32(0)
        at, pattern, found = _hash_until(data, at, min(start + centre, size), pattern, masks[0], gear)
        if not found:
            at, pattern, found = _hash_until(data, at, min(start + most, size), pattern, masks[1], gear)
        ends[count] = at
        count += 1
        start = at
    return count
