"""How the records of counting modules lie in a binary log, for each version of each module.

A record is the file's number, the rank, for data sets and variables the number of their file, then counters of 8 bytes: whole numbers
first, times after them. Older versions are the newest with some counters left out, which count as not monitored (-1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .modules import COUNTERS, PREFIX, is_float

_OLD_STAMPS = ("F_CLOSE_START_TIMESTAMP", "F_OPEN_END_TIMESTAMP")
_POSIX_4 = ("FILENOS", "DUPS", "RENAME_SOURCES", "RENAME_TARGETS", "RENAMED_FROM")
#: PnetCDF counted two kinds of opens before version 3; their sum is what the newest counts.
_SPLIT_OPENS = ("INDEP_OPENS", "COLL_OPENS")


@dataclass(frozen=True)
class Layout:
    """One version of a module's records: the counters in their order."""

    module: str
    whole: tuple[str, ...]
    real: tuple[str, ...]
    #: Whether the number of the file stands behind the rank.
    owner: bool = False
    #: A counter by which records that mix two modules are known, and left out.
    mixed: str = ""
    #: Counters that are added up into one of the newest version.
    sums: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of a record."""
        return 16 + 8 * self.owner + 8 * (len(self.whole) + len(self.real))

    def record(self, order: str) -> np.dtype[Any]:
        """A record as NumPy sees it, in a byte order."""
        owner = [("file", order + "u8")] if self.owner else []
        counters = [("whole", order + "i8", (len(self.whole),)), ("real", order + "f8", (len(self.real),))]
        return np.dtype([("id", order + "u8"), ("rank", order + "i8"), *owner, *counters])


def layout_of(module: str, version: int) -> Layout | None:
    """The layout of a version of a module, None where there is no such version."""
    return _LAYOUTS[module].get(version)


def versions_of(module: str) -> tuple[int, ...]:
    """The versions of a module that are known."""
    return tuple(_LAYOUTS[module])


def _without(module: str, *left: str, owner: bool = False) -> Layout:
    """The newest layout of a module without some counters."""
    gone = {PREFIX[module] + name for name in left}
    kept = [name for name in COUNTERS[module] if name not in gone]
    whole, real = ([name for name in kept if is_float(name) == wanted] for wanted in (False, True))
    return Layout(module, tuple(whole), tuple(real), owner)


def _first_posix() -> Layout:
    """Version 1, whose records count calls on buffered streams between the calls on plain files."""
    second = _without("POSIX", *_POSIX_4, *_OLD_STAMPS)
    streams = tuple(f"POSIX_{name}" for name in ("FOPENS", "FREADS", "FWRITES", "FSEEKS"))
    return Layout("POSIX", (*second.whole[:6], *streams, *second.whole[6:]), second.real, mixed="POSIX_FOPENS")


def _old_pnetcdf(*left: str) -> Layout:
    kept = _without("PNETCDF_FILE", "F_META_TIME", "F_WAIT_START_TIMESTAMP", "F_WAIT_END_TIMESTAMP", "F_WAIT_TIME", *left)
    opens = tuple(f"PNETCDF_FILE_{name}" for name in _SPLIT_OPENS)
    return Layout("PNETCDF_FILE", opens, kept.real, sums={"PNETCDF_FILE_OPENS": opens})


_H5F_3 = ("FLUSHES", "USE_MPIIO", "F_META_TIME")
_LAYOUTS: Mapping[str, Mapping[int, Layout]] = {
    "POSIX": {
        1: _first_posix(), 2: _without("POSIX", *_POSIX_4, *_OLD_STAMPS), 3: _without("POSIX", *_POSIX_4), 4: _without("POSIX"),
    },
    "MPI-IO": {1: _without("MPI-IO", *_OLD_STAMPS), 2: _without("MPI-IO", *_OLD_STAMPS), 3: _without("MPI-IO")},
    "STDIO": {1: _without("STDIO", "FDOPENS"), 2: _without("STDIO")},
    "H5F": {1: _without("H5F", *_H5F_3, *_OLD_STAMPS), 2: _without("H5F", *_H5F_3), 3: _without("H5F")},
    "H5D": {1: _without("H5D"), 2: _without("H5D", owner=True)},
    "PNETCDF_FILE": {1: _old_pnetcdf(*_OLD_STAMPS), 2: _old_pnetcdf(), 3: _without("PNETCDF_FILE")},
    "PNETCDF_VAR": {1: _without("PNETCDF_VAR", owner=True)},
}  # fmt: skip
