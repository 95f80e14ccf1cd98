"""An I/O program as phases between barriers: what each rank asks of which file, through which library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..counters.requests import OPEN, READ, WRITE

if TYPE_CHECKING:
    import numpy.typing as npt

MIB = 1 << 20


@dataclass(frozen=True)
class File:
    """A file, the storage targets (OSTs) that hold it, and how large its stripes are."""

    name: str
    osts: tuple[int, ...]
    stripe: int = MIB
    #: What Darshan reports as the file's alignment in bytes: the stripe on Lustre, a page elsewhere.
    alignment: int = MIB


@dataclass(frozen=True)
class Calls:
    """MPI-IO calls of a phase: every rank asks `count` times for `length` bytes of a file."""

    file: int
    ranks: int
    wrote: bool
    count: int
    length: int
    collective: bool


@dataclass(frozen=True)
class Phase:
    """Operations between two barriers, in the order in which each rank issues them; `file` is an index into the program's files."""

    rank: npt.NDArray[np.int64]
    file: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int8]
    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    library: str = "POSIX"
    calls: tuple[Calls, ...] = ()

    def __len__(self) -> int:
        return len(self.rank)


@dataclass
class Program:
    """Phases, one after another, on `processes` ranks."""

    processes: int
    targets: int
    files: list[File] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    #: How many times slower each OST is than it should be.
    slow: dict[int, float] = field(default_factory=dict)

    def add(self, name: str, osts: Sequence[int], stripe: int = MIB, alignment: int = 0) -> int:
        """Adds a file and returns its number."""
        self.files.append(File(name, tuple(osts), stripe, alignment or stripe))
        return len(self.files) - 1


def requests(
    ranks: Sequence[int], files: Sequence[int], wrote: bool, starts: Any, count: int, size: int, *, step: int = 0, order: Any = None,
    library: str = "POSIX", calls: tuple[Calls, ...] = (),
) -> Phase:  # fmt: skip
    """Rank `ranks[i]` opens `files[i]` and then moves `size` bytes at `starts[i] + step · j` for j from 0 to count - 1, or in `order`."""
    n = len(ranks)
    places = np.arange(count) if order is None else np.asarray(order)
    made = len(places)
    rank = np.repeat(np.asarray(ranks, np.int64), made + 1)
    file = np.repeat(np.asarray(files, np.int64), made + 1)
    kind = np.tile(np.concatenate([[OPEN], np.full(made, WRITE if wrote else READ)]), n).astype(np.int8)
    offset = np.repeat(np.asarray(starts, np.int64), made + 1) + np.tile(np.concatenate([[0], places * (step or size)]), n)
    length = np.tile(np.concatenate([[0], np.full(made, size)]), n).astype(np.int64)
    offset[kind == OPEN] = 0
    return Phase(rank, file, kind, offset.astype(np.int64), length, library, calls)


def metadata(ranks: Sequence[int], files: Sequence[int], kinds: Sequence[int]) -> Phase:
    """Each rank makes all these calls on its file."""
    n, each = len(ranks), len(kinds)
    zeros = np.zeros(n * each, np.int64)
    return Phase(
        np.repeat(np.asarray(ranks, np.int64), each), np.repeat(np.asarray(files, np.int64), each),
        np.tile(np.asarray(kinds, np.int8), n), zeros, zeros,
    )  # fmt: skip
