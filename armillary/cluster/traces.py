"""Values over time from a CSV: carbon intensity, energy price, or the bandwidth of a link. A value holds from its time until the next.

Carbon and price have the columns `time` (ISO 8601, UTC) and `g_per_kwh` or `eur_per_kwh` (any ISO currency in lower case). Bandwidth has
`time_s,bandwidth_mbps[,latency_ms]`, or is a Mahimahi file (`.up` or `.down`, with one line per 1,500-byte packet opportunity, in ms),
which becomes the mean rate of each 100 ms. The last value holds as long as the one before it.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from armillary.cluster.fields import Reads, bad
from armillary.cluster.units import CURRENCIES, shown
from armillary.errors import InputError, one_line
from armillary.files import Column, Table, column_names, read_table

MOST_ROWS = 10_000_000
_PACKET_BYTES = 1500
_MAHIMAHI_BIN_MS = 100
#: The table that was read, and its times, values and latencies (NaN if there are none).
Rows = tuple[Table, np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Trace:
    """A step function of time.

    `times` are ascending seconds (since 1970 for carbon and price, otherwise since the start), `values` are in `unit`, and the last value
    holds until `end`.
    """

    kind: str
    path: Path
    times: np.ndarray
    values: np.ndarray
    unit: str
    end: float
    #: Latencies in seconds that accompany a bandwidth, or None if the file has no such column.
    latencies: np.ndarray | None = None
    #: The longest gap in seconds that the owner of the file allows.
    gaps: float = 86400.0
    digest: str = field(default="")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def at(self, time: float) -> float:
        """The value at `time`; a time outside the trace is an error."""
        return float(self.values[self._index(time)])

    def mean(self, start: float, seconds: float) -> float:
        """The exact mean over `[start, start + seconds]`, or the value at `start` if `seconds` is 0."""
        if seconds == 0:
            return self.at(start)
        stop = start + seconds
        first, last = self._index(start), self._index(stop, closed=True)
        edges = np.concatenate(([start], self.times[first + 1 : last + 1], [stop]))
        return float(np.dot(np.diff(edges), self.values[first : last + 1]) / seconds)

    def _index(self, time: float, closed: bool = False) -> int:
        inside = self.times[0] <= time and (time <= self.end if closed else time < self.end)
        if not inside:
            raise InputError(f"asked for time {time:.0f} s; the trace covers {self.times[0]:.0f} to {self.end:.0f} s", where=str(self.path))
        return int(np.searchsorted(self.times, time, side="right")) - 1


def seconds(when: datetime.datetime | str | float) -> float:
    """Seconds since 1970 of a moment, which is given as such, as a datetime, or as ISO 8601 text (UTC if it has no zone)."""
    if isinstance(when, str):
        try:
            when = datetime.datetime.fromisoformat(when)
        except ValueError:
            raise InputError(f'found {shown(when)}; expected a time such as "2024-01-31T12:00Z"') from None
    if isinstance(when, datetime.datetime):
        return (when if when.tzinfo else when.replace(tzinfo=datetime.UTC)).timestamp()
    return float(when)


def read_trace(found: object, kind: str, context: dict[str, Any] | None) -> Trace:
    """Reads and checks the trace that `"file.csv"` or `{trace = "file.csv", gaps = "2 d"}` names."""
    if isinstance(found, Trace):
        return found
    name, gaps = found, 86400.0
    if isinstance(found, dict):
        if set(found) - {"trace", "gaps"}:
            raise bad(f"found the keys {one_line(', '.join(sorted(map(str, found))), 80)}; expected trace and gaps")
        name = found.get("trace")
        gaps = float(Reads("time").value(found["gaps"])) if "gaps" in found else gaps
    path = named_file(name, context)
    rows, unit = _mahimahi(path) if path.suffix in (".up", ".down") else _csv(path, kind)
    return _checked(path, kind, gaps, rows, unit)


def named_file(name: object, context: dict[str, Any] | None) -> Path:
    """The regular file that a key names, relative to the folder of the cluster file."""
    if not isinstance(name, str) or not name or "\0" in name or len(name) > 1000:
        raise bad(f"found {shown(name)}; expected the name of a file")
    path = Path((context or {}).get("base") or ".") / name
    try:
        regular = path.is_file()
    except OSError as error:
        raise bad(f"{shown(name)}: {error.strerror}") from None
    if not regular:
        raise bad(f"{shown(name)}: no such file")
    return path


def _checked(path: Path, kind: str, gaps: float, rows: Rows, unit: str) -> Trace:
    table, t, v, late = rows
    if len(t) < 2:
        raise bad(f"{path}: {len(t)} rows; expected at least 2")
    wide = np.flatnonzero(np.diff(t) > gaps)
    if len(wide):
        gap = t[wide[0] + 1] - t[wide[0]]
        raise bad(str(table.error(int(wide[0]) + 1, f"a gap of {gap:.0f} s; expected at most {gaps:.0f} s (set gaps if this is intended)")))
    digest = hashlib.sha256()
    for part in (unit.encode(), t.tobytes(), v.tobytes(), late.tobytes(), repr(gaps).encode()):
        digest.update(part)
    return Trace(kind, path, t, v, unit, float(2 * t[-1] - t[-2]), None if np.isnan(late).all() else late, gaps, digest.hexdigest())


def table_of(path: Path, columns: Sequence[Column], **how: Any) -> Table:
    """The table in a CSV file that a cluster file names; what is wrong with it is a fault of the field that names it."""
    try:
        return read_table(path, columns, format="csv", row_limit=MOST_ROWS, **how)
    except InputError as error:
        raise bad(str(error)) from None


def _csv(path: Path, kind: str) -> tuple[Rows, str]:
    if kind == "bandwidth":
        time = Column("time_s", unit="seconds", least=0, increasing=True)
        table = table_of(path, [time, Column("bandwidth_mbps", least=0), Column("latency_ms", least=0, optional=True)])
        late = table["latency_ms"] / 1e3 if "latency_ms" in table else np.full(table.rows, np.nan)
        return (table, table["time_s"], table["bandwidth_mbps"] * 1e6 / 8, late), "B/s"
    name = "g_per_kwh" if kind == "carbon" else _price_column(path)
    unit = "g/kWh" if kind == "carbon" else f"{name[:-8].upper()}/kWh"
    table = table_of(path, [Column("time", "datetime", increasing=True), Column(name, least=0 if kind == "carbon" else -1e6)])
    # Microseconds since 1970 are exact as floating-point numbers.
    times = table["time"].astype("datetime64[us]").astype(np.int64) / 1e6
    return (table, times, table[name], np.full(table.rows, np.nan)), unit


def _price_column(path: Path) -> str:
    try:
        names = [name.lower() for name in column_names(path, format="csv")]
    except InputError as error:
        raise bad(str(error)) from None
    found = [name for name in names if name.endswith("_per_kwh") and name[:-8].upper() in CURRENCIES]
    if not found:
        columns = one_line(", ".join(names), 120)
        raise bad(f"{path}:1: found the columns {columns}; expected time and eur_per_kwh (or another ISO currency)")
    return found[0]


def _mahimahi(path: Path) -> tuple[Rows, str]:
    table = table_of(path, [Column("ms", unit="milliseconds", least=0, most=10**9, not_decreasing=True)], header=False)
    packets = np.bincount(table["ms"].astype(np.int64) // _MAHIMAHI_BIN_MS)
    width = _MAHIMAHI_BIN_MS / 1e3
    times = np.arange(len(packets)) * width
    return (table, times, packets * _PACKET_BYTES / width, np.full(len(packets), np.nan)), "B/s"
