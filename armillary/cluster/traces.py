"""Values over time from a CSV: carbon intensity, energy price, or the bandwidth of a link. A value holds from its time until the next.

Carbon and price have the columns `time` (ISO 8601, UTC) and `g_per_kwh` or `eur_per_kwh` (any ISO currency in lower case). Bandwidth has
`time_s,bandwidth_mbps[,latency_ms]`, or is a Mahimahi file (`.up` or `.down`, with one line per 1,500-byte packet opportunity, in ms),
which becomes the mean rate of each 100 ms. The last value holds as long as the one before it.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import itertools
import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from armillary.cluster.fields import Reads, bad
from armillary.cluster.units import CURRENCIES, shown
from armillary.errors import InputError, one_line

MOST_ROWS = 10_000_000
_LONGEST_LINE = 10_000
_PACKET_BYTES = 1500
_MAHIMAHI_BIN_MS = 100


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
    rows = _mahimahi(path) if path.suffix in (".up", ".down") else _csv(path, kind)
    return _gathered(path, kind, gaps, rows)


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


def _gathered(path: Path, kind: str, gaps: float, rows: Iterator[tuple[int, float, float, float, str]]) -> Trace:
    times, values, latencies, unit = array("d"), array("d"), array("d"), ""
    for line, time, value, latency, named in rows:
        if times and time <= times[-1]:
            raise bad(f"{path.name}:{line}: the time does not increase; expected a later time than in the line before")
        if times and time - times[-1] > gaps:
            raise bad(
                f"{path.name}:{line}: a gap of {time - times[-1]:.0f} s; expected at most {gaps:.0f} s (set gaps if this is intended)"
            )
        if len(times) >= MOST_ROWS:
            raise bad(f"{path.name}:{line}: more than {MOST_ROWS:,} rows")
        unit = named
        times.append(time)
        values.append(value)
        latencies.append(latency)
    if len(times) < 2:
        raise bad(f"{path.name}: {len(times)} rows; expected at least 2")
    t, v, late = np.frombuffer(times), np.frombuffer(values), np.frombuffer(latencies)
    with_latency = None if np.isnan(late).all() else late
    digest = hashlib.sha256()
    for part in (unit.encode(), t.tobytes(), v.tobytes(), late.tobytes(), repr(gaps).encode()):
        digest.update(part)
    return Trace(kind, path, t, v, unit, float(2 * t[-1] - t[-2]), with_latency, gaps, digest.hexdigest())


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a text file, one at a time; an unreasonably long line is an error."""
    try:
        with path.open("r", encoding="utf-8-sig", newline="") as file:
            for number in itertools.count(1):
                line = file.readline(_LONGEST_LINE + 1)
                if not line:
                    return
                if len(line) > _LONGEST_LINE:
                    raise bad(f"{path.name}:{number}: a line longer than {_LONGEST_LINE:,} characters")
                yield line
    except UnicodeDecodeError:
        raise bad(f"{path.name}: not UTF-8 text") from None
    except OSError as error:
        raise bad(f"{path.name}: {error.strerror}") from None


def rows_of(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The (line number, stripped cells) of the rows of a CSV that are not empty."""
    try:
        for number, row in enumerate(csv.reader(lines_of(path), strict=True), 1):
            if row and any(cell.strip() for cell in row):
                yield number, [cell.strip() for cell in row]
    except csv.Error as error:
        raise bad(f"{path.name}: not a CSV file ({error})") from None


def columns_of(path: Path, rows: Iterator[tuple[int, list[str]]], wanted: dict[str, bool]) -> dict[str, int]:
    """The position of each wanted column (name -> required) in the header."""
    _, header = next(rows, (1, []))
    names = [cell.lower() for cell in header]
    missing = [name for name, required in wanted.items() if required and name not in names]
    if missing:
        raise bad(f"{path.name}:1: no column {', '.join(missing)}; found {one_line(', '.join(header), 120) or 'an empty file'}")
    return {name: names.index(name) for name in wanted if name in names}


def number_in(path: Path, line: int, name: str, text: str, low: float = 0.0) -> float:
    """A finite number of at least `low` in one cell."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < low:
        raise bad(f"{path.name}:{line}: {name}: found {shown(text)}; expected a number of at least {low:g}")
    return value


def cell(path: Path, line: int, row: list[str], at: int) -> str:
    """One cell of a row; a row that is too short is an error."""
    if at >= len(row):
        raise bad(f"{path.name}:{line}: found {len(row)} columns; expected at least {at + 1}")
    return row[at]


def _csv(path: Path, kind: str) -> Iterator[tuple[int, float, float, float, str]]:
    rows = rows_of(path)
    if kind == "bandwidth":
        at = columns_of(path, rows, {"time_s": True, "bandwidth_mbps": True, "latency_ms": False})
        for line, row in rows:
            time = number_in(path, line, "time_s", cell(path, line, row, at["time_s"]))
            rate = number_in(path, line, "bandwidth_mbps", cell(path, line, row, at["bandwidth_mbps"])) * 1e6 / 8
            late = number_in(path, line, "latency_ms", cell(path, line, row, at["latency_ms"])) / 1e3 if "latency_ms" in at else math.nan
            yield line, time, rate, late, "B/s"
        return
    header = next(rows, (1, []))[1]
    names = [cell.lower() for cell in header]
    value_names = ["g_per_kwh"] if kind == "carbon" else [n for n in names if n.endswith("_per_kwh") and n[:-8].upper() in CURRENCIES]
    if "time" not in names or not value_names or value_names[0] not in names:
        wanted = "time and g_per_kwh" if kind == "carbon" else "time and eur_per_kwh (or another ISO currency)"
        raise bad(f"{path.name}:1: found the columns {one_line(', '.join(header), 120) or '(none)'}; expected {wanted}")
    name = value_names[0]
    unit = "g/kWh" if kind == "carbon" else f"{name[:-8].upper()}/kWh"
    when, what, low = names.index("time"), names.index(name), 0.0 if kind == "carbon" else -1e6
    for line, row in rows:
        text = cell(path, line, row, when)
        try:
            time = seconds(text)
        except (InputError, ValueError, OverflowError):
            raise bad(f'{path.name}:{line}: time: found {shown(text)}; expected ISO 8601 such as "2024-01-31T12:00Z"') from None
        yield line, time, number_in(path, line, name, cell(path, line, row, what), low), math.nan, unit


def _mahimahi(path: Path) -> Iterator[tuple[int, float, float, float, str]]:
    counted, at, last, line = 0, 0, 0, 0
    for line, text in enumerate(lines_of(path), 1):
        if not text.strip():
            continue
        ms = int(number_in(path, line, "ms", text.strip()))
        if ms < last or ms > 10**9:
            raise bad(f"{path.name}:{line}: found {ms} ms after {last} ms; expected milliseconds that do not fall, at most 1,000,000,000")
        last = ms
        while ms >= (at + 1) * _MAHIMAHI_BIN_MS:
            yield line, *_bin(at, counted)
            at, counted = at + 1, 0
        counted += 1
    if counted:
        yield line, *_bin(at, counted)


def _bin(at: int, packets: int) -> tuple[float, float, float, str]:
    width = _MAHIMAHI_BIN_MS / 1e3
    return at * width, packets * _PACKET_BYTES / width, math.nan, "B/s"
