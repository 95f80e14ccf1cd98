"""Block traces: MSR Cambridge, Alibaba and Tencent CBS. A request becomes one request per block that it touches.

- MSR: `timestamp (100 ns since 1601),host,disk,Read|Write,offset,size,response` in bytes;
- Alibaba: `device,R|W,offset,length,timestamp_us` in bytes;
- Tencent: `timestamp_s,offset,size,0|1,volume` in sectors of 512 bytes, 0 reading and 1 writing.

Reads and writes are both lookups, as in the papers that use these traces: a write to a block that is cached is a hit. Every
object is one block and counts one. A request of more than 1 GiB is cut to its first GiB.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from armillary.kernels import loop

from ...idmap import IdMap
from .fields import MOST_ID, Fields, seeds
from .requests import Requests

#: A longer request is cut to this many bytes.
MOST_REQUEST_BYTES = 2**30
SECTOR_BYTES = 512
#: Requests that one step of the expansion makes.
_STEP = 2**18
_MSR_WORDS = {"read": 0, "write": 0}
_ALIBABA_WORDS = {"r": 0, "w": 0}
_TENCENT_WORDS = {"0": 0, "1": 0}


@dataclass
class BlockIo:
    """`TextFormat` of a block trace; `kind` is msr, alibaba or tencent. Warns once of requests that it cuts."""

    kind: str
    block: int
    words = 2
    _volumes: IdMap = field(default_factory=lambda: IdMap(words=2), repr=False)
    _seeds: tuple[np.uint64, np.uint64] = field(default_factory=seeds, repr=False)
    _warned: bool = False

    @property
    def columns(self) -> tuple[int, ...]:
        """Time, operation, offset, length, then what names the volume."""
        return {"msr": (0, 3, 4, 5, 1, 2), "alibaba": (4, 1, 2, 3, 0), "tencent": (0, 3, 1, 2, 4)}[self.kind]

    @property
    def exactly(self) -> int:
        """Columns of a row."""
        return 7 if self.kind == "msr" else 5

    def requests(self, fields: Fields) -> Iterator[Requests]:
        """One request for each block that a row touches, in order."""
        fields.check_numbers(0, "timestamp_us" if self.kind == "alibaba" else "timestamp")
        fields.codes(1, "op", {"msr": _MSR_WORDS, "alibaba": _ALIBABA_WORDS, "tencent": _TENCENT_WORDS}[self.kind])
        unit = SECTOR_BYTES if self.kind == "tencent" else 1
        offsets = fields.whole_numbers(2, "offset", MOST_ID // unit) * np.uint64(unit)
        lengths = fields.whole_numbers(3, "length" if self.kind == "alibaba" else "size", MOST_ID // unit) * np.uint64(unit)
        if self.kind == "msr":
            volumes = self._volumes.map(*fields.hashes((4, 5), self._seeds)).astype(np.uint64)
        else:
            volumes = fields.whole_numbers(4, "device" if self.kind == "alibaba" else "volume")
        self._warn(fields, lengths)
        lengths = np.clip(lengths, np.uint64(1), np.uint64(MOST_REQUEST_BYTES))
        first = offsets // np.uint64(self.block)
        count = (offsets + lengths - np.uint64(1)) // np.uint64(self.block) - first + np.uint64(1)
        yield from _blocks(first, count, volumes)

    def _warn(self, fields: Fields, lengths: np.ndarray) -> None:
        if self._warned:
            return
        oddities = {"of 0 bytes are counted as 1": lengths == 0, "of more than 1 GiB are cut to 1 GiB": lengths > MOST_REQUEST_BYTES}
        for what, odd in oddities.items():
            if odd.any():
                self._warned = True
                warnings.warn(f"{fields.where(int(np.argmax(odd)))}: requests {what}", UserWarning, stacklevel=2)


def _blocks(first: np.ndarray, count: np.ndarray, volumes: np.ndarray) -> Iterator[Requests]:
    row, within = 0, 0
    while row < len(first):
        blocks, volume = np.empty(_STEP, np.uint64), np.empty(_STEP, np.uint64)
        made, row, within = _expand(first, count, volumes, row, within, blocks, volume)
        yield Requests(blocks[:made], volume[:made])


@loop
def _expand(first, count, volumes, row, within, blocks, volume):
    # Fills the outputs from block `within` of request `row` on; returns how many it made and where to go on.
    made = 0
    while row < len(first):
        todo = min(np.int64(count[row]) - within, len(blocks) - made)
        for k in range(todo):
            blocks[made + k] = first[row] + np.uint64(within + k)
            volume[made + k] = volumes[row]
        made += todo
        within += todo
        if within < np.int64(count[row]):
            return made, row, within
        row += 1
        within = 0
    return made, row, within


def looks_like(row: list[str]) -> str:
    """`msr` or `alibaba` if a row could be one of theirs, or an empty string. A Tencent row could be anything."""
    if len(row) == 7 and row[3].strip().lower() in _MSR_WORDS and row[4].strip().isdigit() and row[5].strip().isdigit():
        return "msr"
    if len(row) == 5 and row[1].strip().lower() in _ALIBABA_WORDS and all(row[c].strip().isdigit() for c in (2, 3, 4)):
        return "alibaba"
    return ""
