"""Operations of an I/O program, or traced requests of a real one, as columns in the order in which each rank issued them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..logs.log import Segments

if TYPE_CHECKING:
    import numpy.typing as npt

READ, WRITE, OPEN, STAT, SEEK, SYNC = range(6)


@dataclass(frozen=True)
class Requests:
    """Operations on files: which file and rank, what kind, where, how many bytes, and from when to when in seconds."""

    file: npt.NDArray[np.uint64]
    rank: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int8]
    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    start_s: npt.NDArray[np.float64]
    end_s: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.file)

    @classmethod
    def traced(cls, segments: Segments) -> Requests:
        """What a tracing module holds, by start times within each file and rank."""
        order = np.lexsort((segments.start_s, segments.ranks, segments.ids))
        kind = np.where(segments.wrote, WRITE, READ).astype(np.int8)
        columns: tuple[Any, ...] = (segments.ids, segments.ranks, kind, segments.offset, segments.length, segments.start_s, segments.end_s)
        return cls(*(column[order] for column in columns))

    @classmethod
    def joined(cls, parts: list[Requests]) -> Requests:
        """Several lists of operations, one after another."""
        names = ("file", "rank", "kind", "offset", "length", "start_s", "end_s")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
