"""A job's I/O log in memory: who ran, what each module counted for each file and rank, and single requests where they were traced."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import unknown

from .modules import COUNTED, is_float

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

#: Records that a log may have unless the caller says otherwise, and single traced requests.
MOST_RECORDS = 1_000_000
MOST_SEGMENTS = 50_000_000
#: The largest time, time stamp or variance that is believed, so that sums of them stay finite.
MOST_TIME = 1e60


@dataclass(frozen=True)
class Module:
    """What one module counted: a row per record, a column per counter. Rank -1 stands for all ranks together."""

    name: str
    ids: npt.NDArray[np.uint64]
    ranks: npt.NDArray[np.int64]
    counters: Mapping[str, npt.NDArray[Any]]
    partial: bool = False
    version: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    def column(self, name: str) -> npt.NDArray[Any]:
        """One counter of every record; zeros where the log's version does not have it. A count of -1 was not monitored."""
        found = self.counters.get(name)
        if found is None:
            return np.zeros(len(self.ids), np.float64 if is_float(name) else np.int64)
        return found

    def amount(self, name: str) -> npt.NDArray[np.float64]:
        """One counter as non-negative floats: what was not monitored, or came out negative from a clock that was set, is 0."""
        return np.maximum(self.column(name).astype(np.float64), 0.0)

    def taken(self, rows: npt.NDArray[Any]) -> Module:
        """The module with these rows only."""
        return Module(
            self.name, self.ids[rows], self.ranks[rows], {name: c[rows] for name, c in self.counters.items()}, self.partial, self.version
        )


@dataclass(frozen=True)
class Stripes:
    """How Lustre spread each file: a row per file and component, with the numbers of its storage targets (OSTs)."""

    ids: npt.NDArray[np.uint64]
    ranks: npt.NDArray[np.int64]
    component: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    count: npt.NDArray[np.int64]
    #: Offsets into `osts` of each row, one more than rows.
    begin: npt.NDArray[np.int64]
    osts: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    def of(self, row: int) -> npt.NDArray[np.int64]:
        """The OSTs of one row."""
        return self.osts[self.begin[row] : self.begin[row + 1]]


@dataclass(frozen=True)
class Segments:
    """Single requests of one tracing module, as columns."""

    module: str
    ids: npt.NDArray[np.uint64]
    ranks: npt.NDArray[np.int64]
    #: 1 where the request wrote.
    wrote: npt.NDArray[np.bool_]
    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    start_s: npt.NDArray[np.float64]
    end_s: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Log:
    """Everything that one log says. `log.records("POSIX")` is a Polars table, `log.totals` the sums over all files and ranks."""

    name: str
    version: str = ""
    executable: str = ""
    job: str = ""
    processes: int = 1
    run_time_s: float = 0.0
    start_time_s: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)
    #: (folder, type of its file system), as the log lists them.
    mounts: Sequence[tuple[str, str]] = ()
    modules: Mapping[str, Module] = field(default_factory=dict)
    stripes: Stripes | None = None
    segments: Mapping[str, Segments] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)
    #: Modules that the log has and that are not looked at.
    left: Sequence[str] = ()
    #: Modules whose records are not complete, those that are not looked at included.
    partial: Sequence[str] = ()

    @functools.cached_property
    def totals(self) -> dict[str, float]:
        """Each counter that can be added, summed over all records of its module; what was not monitored counts as 0."""
        sums = {}
        for module in self.modules.values():
            for name in module.counters:
                if _adds_up(name):
                    sums[name] = float(module.amount(name).sum())
        return sums

    def records(self, module: str) -> pl.DataFrame:
        """The records of a module as a Polars table with the file's name, its mount point and the type of its file system."""
        import polars as pl

        known = [name for name in self.modules if name in COUNTED]
        if module not in self.modules:
            raise unknown("module", module, known, where=self.name)
        found = self.modules[module]
        names = [self.file(int(number)) for number in found.ids]
        places = [self.mount_of(name) for name in names]
        first = {
            "file": names, "rank": found.ranks, "id": found.ids, "mount": [place for place, _ in places],
            "file_system": [kind for _, kind in places],
        }  # fmt: skip
        return pl.DataFrame({**first, **found.counters})

    def dxt(self) -> pl.DataFrame:
        """Every traced request: module, file, rank, operation, offset, length, start and end in seconds."""
        import polars as pl

        parts = [
            pl.DataFrame({
                "module": pl.Series([part.module]).new_from_index(0, len(part)), "id": part.ids, "rank": part.ranks, "wrote": part.wrote,
                "offset": part.offset, "length": part.length, "start_s": part.start_s, "end_s": part.end_s,
            })
            for part in self.segments.values()
        ]  # fmt: skip
        if not parts:
            return pl.DataFrame(schema={"module": pl.String, "file": pl.String, "rank": pl.Int64, "wrote": pl.Boolean})
        table = pl.concat(parts)
        ids = table["id"].unique()
        names = pl.DataFrame({"id": ids, "file": [self.file(int(number)) for number in ids]})
        return table.join(names, on="id", how="left").drop("id").select("module", "file", pl.exclude("module", "file"))

    def file(self, number: int) -> str:
        """The name of a record, or its number where the log does not name it."""
        return self.names.get(number, f"file {number}")

    def mount_of(self, path: str) -> tuple[str, str]:
        """The mount point of a path and the type of its file system: the longest mount that the path lies beneath."""
        for place, kind in self._mounts:
            if path.startswith(place) and (place.endswith("/") or path[len(place) : len(place) + 1] in ("", "/")):
                return place, kind
        return "UNKNOWN", "UNKNOWN"

    @functools.cached_property
    def _mounts(self) -> list[tuple[str, str]]:
        return sorted(self.mounts, key=lambda mount: -len(mount[0]))


def _adds_up(name: str) -> bool:
    """Whether a counter is an amount, so that a sum over files means something."""
    if name.endswith(("_TIME",)):
        return not any(part in name for part in ("_MAX_", "FASTEST", "SLOWEST", "VARIANCE"))
    other = ("TIMESTAMP", "VARIANCE", "RANK", "ALIGNMENT", "_MODE", "MAX_BYTE", "TIME_SIZE", "_STRIDE", "_ACCESS", "STRIDE", "ACCESS")
    return not any(part in name for part in other)
