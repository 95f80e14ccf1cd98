"""Exports of Nsight Systems: the SQLite file that `nsys export -t sqlite` writes, as columns of whole numbers and texts.

Which tables and columns an export has depends on what was traced and on the version; a missing one is read as NULL. A process and a thread
stand in one number, `globalTid`: the process is globalTid / 2^24 mod 2^24, and the thread is globalTid mod 2^24.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

from .opening import STREAM_BYTES, Name
from .sqlite import SqliteFile
from .sqlite_pages import NULL, Numbers

__all__ = ["NULL", "NsightExport", "process_of", "thread_of"]

#: Texts of an export, and rows of its small tables.
_STRINGS, _SMALL = 20_000_000, 1_000_000
_BITS = 24


def process_of(identifiers: Numbers) -> Numbers:
    """The process numbers in `globalTid` or `globalPid`."""
    return (identifiers >> _BITS) & ((1 << _BITS) - 1)


def thread_of(identifiers: Numbers) -> Numbers:
    """The thread numbers in `globalTid`."""
    return identifiers & ((1 << _BITS) - 1)


class NsightExport:
    """An export that is open for reading: `with NsightExport(path) as export`."""

    def __init__(self, path: Name, *, limit: int = STREAM_BYTES) -> None:
        if Path(path).suffix in (".nsys-rep", ".qdrep", ".qdstrm"):
            how = f"nsys export -t sqlite {Path(path).name}"
            raise InputError(f"found a report of Nsight Systems; expected its SQLite export, which `{how}` makes", where=str(path))
        self._file = SqliteFile(path, limit=limit)
        self.where = self._file.where
        try:
            if "META_DATA_EXPORT" not in self._file.tables:
                raise InputError("found no table META_DATA_EXPORT; expected an export of Nsight Systems", where=self.where)
            facts = dict(self.small("META_DATA_EXPORT", "name", "value"))
            parts = [_whole(facts.get(f"EXPORT_SCHEMA_VERSION_{part}")) for part in ("MAJOR", "MINOR", "MICRO")]
            if parts[0] is None:
                parts = [_whole(part) for part in [*str(facts.get("EXPORT_SCHEMA_VERSION", "")).split("."), "0", "0", "0"][:3]]
            #: The version of the schema, such as (3, 16, 0).
            self.schema = tuple(part or 0 for part in parts)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> NsightExport:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    @property
    def tables(self) -> frozenset[str]:
        """The names of the tables that the export has."""
        return frozenset(self._file.tables)

    def columns(self, table: str) -> tuple[str, ...]:
        """The columns of a table; none where it does not exist."""
        return self._file.columns(table)

    def numbers(self, table: str, columns: Sequence[str]) -> Iterator[dict[str, Numbers]]:
        """Columns of whole numbers in chunks; `NULL` stands for NULL and for a missing column."""
        return self._file.numbers(table, columns)

    def small(self, table: str, *columns: str, most: int = _SMALL, present: str = "") -> list[tuple[Any, ...]]:
        """Rows of a small table; empty where it does not exist. `present` leaves out rows in which this column is NULL."""
        return self._file.rows(table, columns, most=most, present=present)

    def strings(self) -> tuple[npt.NDArray[np.int64], list[str]]:
        """The numbers of all texts, increasing, and the texts."""
        rows = [(key, text) for key, text in self.small("StringIds", "id", "value", most=_STRINGS) if isinstance(key, int)]
        rows.sort(key=lambda row: row[0])
        keys = np.array([key for key, _ in rows], np.int64)
        return keys, [text if isinstance(text, str) else "" for _, text in rows]

    def labels(self, table: str) -> dict[int, str]:
        """The human names of an ENUM table's numbers."""
        rows = self.small(table, "id", "label", "name")
        return {key: str(label if label is not None else name) for key, label, name in rows if isinstance(key, int)}

    @property
    def host(self) -> str:
        """The name of the node, or an empty text where the export does not say it."""
        found = [value for name, value in self.small("TARGET_INFO_SYSTEM_ENV", "name", "value") if name == "Hostname"]
        return str(found[0]) if found else ""

    @property
    def session_start_ns(self) -> int | None:
        """When the recording began, in nanoseconds since 1970, by the node's clock."""
        found = [value for (value,) in self.small("TARGET_INFO_SESSION_START_TIME", "utcEpochNs") if isinstance(value, int)]
        return found[0] if found and 0 <= found[0] < 1 << 62 else None


def _whole(text: Any) -> int | None:
    return int(text) if isinstance(text, int | str) and str(text).isascii() and str(text).isdigit() and len(str(text)) < 10 else None
