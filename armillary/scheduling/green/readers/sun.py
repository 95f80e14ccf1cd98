"""The sun from files: NSRDB and PVGIS exports, or a table `timestamp,watts`.

NSRDB: the names and values of the metadata in lines 1 and 2 (`Latitude`, `Longitude`, `Time Zone` in hours), columns by name from line 3
on. PVGIS hourly: metadata until the line that begins with `time,`, times such as `20160101:0010` in UTC, data until the first empty line;
`P` is watts, `G(i)` or the sum of `Gb(i)`, `Gd(i)` and `Gr(i)` irradiance on the panels' plane.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line
from armillary.files import Column, read_head, read_lines, read_table
from armillary.scheduling.energy import clear_sky, zenith

Floats = npt.NDArray[np.float64]

MOST_ROWS = 5_000_000
#: Longer gaps in daylight are refused.
LONGEST_GAP_S = 7200.0


@dataclass(frozen=True)
class Sun:
    """A measured series: watts of panels, or W/m² where `irradiance` is true; degrees north and east where the file has them."""

    times_s: Floats
    values: Floats
    irradiance: bool
    air_c: Floats | None = None
    latitude: float | None = None
    longitude: float | None = None

    @property
    def step_s(self) -> float:
        """The usual time between two values."""
        return float(np.median(np.diff(self.times_s)))


def read_sun(path: str | Path) -> Sun:
    """The series of a file, by its content."""
    place = Path(path)
    head = read_head(place, 4096).decode("utf-8", "replace").lstrip("\ufeff").splitlines()[:3]
    if head and head[0].lower().startswith("latitude (decimal degrees)"):
        return _pvgis(place)
    if len(head) >= 3 and "time zone" in head[0].lower() and "latitude" in head[0].lower():
        return _nsrdb(place)
    columns = [Column("timestamp", "datetime", increasing=True), Column("watts", least=0, most=1e9, unit="watts")]
    table = read_table(place, columns, format="csv", row_limit=MOST_ROWS)
    if table.rows < 2:
        raise InputError("found one value; expected at least 2", where=str(path))
    return Sun(table["timestamp"].astype("datetime64[us]").astype(np.int64) / 1e6, table["watts"], irradiance=False)


def _nsrdb(path: Path) -> Sun:
    lines = _cells(path)
    (_, names), (_, values), (_, columns) = next(lines), next(lines, (2, [])), next(lines, (3, []))
    facts = {name.strip().lower(): value.strip() for name, value in zip(names, values)}
    zone = _number(facts.get("time zone", ""), f"{path}:2", "a time zone in hours", -15, 15)
    latitude = _number(facts.get("latitude", ""), f"{path}:2", "a latitude", -90, 90)
    longitude = _number(facts.get("longitude", ""), f"{path}:2", "a longitude", -180, 180)
    at = {name.strip().lower(): i for i, name in enumerate(columns)}
    lacking = [name for name in ("year", "month", "day", "hour", "minute", "ghi") if name not in at]
    if lacking:
        raise InputError(f'found no column "{lacking[0].upper() if lacking[0] == "ghi" else lacking[0].title()}"', where=f"{path}:3")
    times, light, air = [], [], []
    for number, cells in lines:
        where = f"{path}:{number}"
        if len(cells) < len(columns):
            raise InputError(f"found {len(cells)} cells; expected {len(columns)}", where=where)
        parts = [int(_number(cells[at[name]], where, "a whole number", 0, 9999)) for name in ("year", "month", "day", "hour", "minute")]
        try:
            moment = datetime(*parts, tzinfo=UTC) - timedelta(hours=zone)  # type: ignore[arg-type,misc]
        except (ValueError, OverflowError):
            raise InputError("found a moment that there is not; expected year, month, day, hour and minute", where=where) from None
        times.append(moment.timestamp())
        light.append(_number(cells[at["ghi"]], where, "W/m² from 0 to 2000", 0, 2000))
        if "temperature" in at:
            air.append(_number(cells[at["temperature"]], where, "°C", -100, 80))
    return _series(path, times, light, True, air, latitude, longitude)


def _pvgis(path: Path) -> Sun:
    place: dict[str, float] = {}
    at: dict[str, int] = {}
    times, values, air = [], [], []
    for number, cells in _cells(path):
        where = f"{path}:{number}"
        if not at:
            first = cells[0].strip() if cells else ""
            for name in ("Latitude", "Longitude"):
                if first.lower().startswith(f"{name.lower()} (decimal degrees):"):
                    limit = 90.0 if name == "Latitude" else 180.0
                    place[name] = _number(first.partition(":")[2], where, f"a {name.lower()}", -limit, limit)
            if first == "time":
                at = {name.strip(): i for i, name in enumerate(cells)}
                plane = [name for name in ("Gb(i)", "Gd(i)", "Gr(i)") if name in at]
                if not ("P" in at or "G(i)" in at or len(plane) == 3):
                    raise InputError("found neither P nor G(i) nor Gb(i), Gd(i) and Gr(i)", where=where)
            continue
        if not cells or not cells[0].strip():
            break
        if len(cells) < len(at):
            raise InputError(f"found {len(cells)} cells; expected {len(at)}", where=where)
        try:
            times.append(datetime.strptime(cells[0].strip(), "%Y%m%d:%H%M").replace(tzinfo=UTC).timestamp())
        except ValueError:
            raise InputError(f'found "{one_line(cells[0], 20)}"; expected a time such as 20160101:0010', where=where) from None
        if "P" in at:
            values.append(_number(cells[at["P"]], where, "watts of at least 0", 0, 1e9))
        else:
            names = ["G(i)"] if "G(i)" in at else ["Gb(i)", "Gd(i)", "Gr(i)"]
            values.append(sum(_number(cells[at[name]], where, "W/m² from 0 to 2000", 0, 2000) for name in names))
        if "T2m" in at:
            air.append(_number(cells[at["T2m"]], where, "°C", -100, 80))
    if not at:
        raise InputError("found no line that begins with time,; expected an hourly export of PVGIS", where=str(path))
    return _series(path, times, values, "P" not in at, air, place.get("Latitude"), place.get("Longitude"))


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in read_lines(path, most=MOST_ROWS):
        try:
            yield number, next(csv.reader([line.lstrip("\ufeff")]), [])
        except csv.Error as problem:
            raise InputError(f"cannot be read ({one_line(str(problem), 60)})", where=f"{path}:{number}") from None


def _number(text: str, where: str, what: str, low: float, high: float) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not low <= found <= high:
        raise InputError(f'found "{one_line(text, 24)}"; expected {what}', where=where)
    return found


def _series(
    path: Path, times: list[float], values: list[float], irradiance: bool, air: list[float], latitude: float | None, longitude: float | None
) -> Sun:
    if len(times) < 2:
        raise InputError(f"found {len(times)} values; expected at least 2", where=str(path))
    order = np.array(times)
    back = np.flatnonzero(np.diff(order) <= 0)
    if len(back):
        raise InputError(f"found times that do not increase after value {int(back[0]) + 1}", where=str(path))
    return Sun(order, np.array(values), irradiance, np.array(air) if air else None, latitude, longitude)


def resampled(
    sun: Sun, moments: npt.NDArray[Any], place: tuple[float, float], where: str
) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """Values and air temperatures (15 °C where there are none) at some moments, by interpolation, and which moments the file covers.

    A gap of more than two hours in daylight is refused. A value holds for one more step at both ends.
    """
    gaps = np.diff(sun.times_s)
    for i in np.flatnonzero(gaps > LONGEST_GAP_S).tolist():
        if sun.times_s[i + 1] < moments[0] or sun.times_s[i] > moments[-1]:
            continue
        within = np.linspace(sun.times_s[i], sun.times_s[i + 1], 50)[1:-1]
        if clear_sky(zenith(within, *place)).max() > 50:
            moment = datetime.fromtimestamp(float(sun.times_s[i]), UTC).isoformat()
            said = f"found no value for {gaps[i] / 3600:.1f} h of daylight after {moment}; expected gaps of at most 2 h"
            raise InputError(said, where=where)
    step = sun.step_s
    covered = (moments >= sun.times_s[0] - step) & (moments <= sun.times_s[-1] + step)
    air = np.full(len(moments), 15.0) if sun.air_c is None else np.interp(moments, sun.times_s, sun.air_c)
    return np.interp(moments, sun.times_s, sun.values), air, covered
