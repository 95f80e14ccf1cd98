"""Carbon of electricity over time, and the power that an idle container draws.

The power of whole nodes, and the carbon intensity and place of a site, stand in cluster files (`armillary.cluster`); `Carbon.of` takes a
site's intensity from there.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.cluster.traces import Trace
from armillary.errors import InputError, unknown
from armillary.files import Column, column_names, read_table

Floats = npt.NDArray[np.float64]

JOULES_PER_KWH = 3.6e6
#: Watts of an idle vCPU (Cloud Carbon Footprint's minimum), watts per GB of DRAM (Green Algorithms), and a chosen power usage ratio.
WATTS_PER_VCPU, WATTS_PER_GB, PUE = 0.74, 0.3725, 1.2
#: Grids to play work on, which are chosen: their g/kWh, or the lowest and highest; and the correlation of the wind from hour to hour.
GRIDS = ("flat", "solar-dip", "wind-noisy")
FLAT, SOLAR, WIND, _MEMORY = 450.0, (120.0, 480.0), (60.0, 350.0), 0.85
#: Longer gaps in a series are refused, and shorter ones interpolated.
LONGEST_GAP_S = 6 * 3600.0
MOST_ROWS = 5_000_000
#: What the two columns of Electricity Maps' files are called at their end.
_ENDINGS = {"direct": ("(direct)",), "life-cycle": ("(lca)", "(life cycle)")}


def idle_watts(vcpu: Any, memory_gb: Any) -> Any:
    """Watts at the meter of an idle container: (0.74·vCPU + 0.3725·GB)·PUE; numbers or arrays."""
    return (WATTS_PER_VCPU * vcpu + WATTS_PER_GB * memory_gb) * PUE


@dataclass(frozen=True)
class Carbon:
    """Carbon intensity as a step function: `values[k]` g/kWh from `times_s[k]` until the next time, the last one until `end_s`."""

    times_s: Floats
    values: Floats
    end_s: float = math.inf
    #: Values that a file lacked and that were interpolated.
    interpolated: int = 0

    def __post_init__(self) -> None:
        if not len(self.times_s) or len(self.times_s) != len(self.values):
            raise InputError(f"found {len(self.times_s)} times and {len(self.values)} intensities; expected as many of each, at least one")
        if np.any(np.diff(self.times_s) <= 0) or not np.isfinite(self.times_s).all():
            raise InputError("found times of carbon intensities that do not increase; expected finite times that do")
        if not np.isfinite(self.values).all() or self.values.min() < 0:
            raise InputError("found a carbon intensity below 0 or not finite; expected g/kWh of at least 0")

    @staticmethod
    def flat(g_per_kwh: float) -> Carbon:
        """The same intensity at all times."""
        return Carbon(np.zeros(1), np.array([float(g_per_kwh)]))

    @staticmethod
    def hourly(g_per_kwh: npt.ArrayLike) -> Carbon:
        """One value per hour from time 0 on."""
        values = np.asarray(g_per_kwh, np.float64)
        return Carbon(np.arange(len(values), dtype=np.float64) * 3600.0, values, 3600.0 * len(values))

    @staticmethod
    def of(intensity: Any) -> Carbon:
        """The intensity of a cluster's site: `Site.carbon_intensity`, which is a number or a trace."""
        if intensity is None:
            raise InputError("unknown", where="site.carbon_intensity")
        if isinstance(intensity, Trace):
            return Carbon(intensity.times, intensity.values, intensity.end)
        return Carbon.flat(float(intensity))

    @functools.cached_property
    def cumulative(self) -> Floats:
        """∫ intensity dt from the first time to each of the times, in g·s/kWh."""
        return np.concatenate(([0.0], np.cumsum(np.diff(self.times_s) * self.values[:-1])))

    @property
    def series(self) -> tuple[Floats, Floats, Floats]:
        """(times, values, cumulative), as compiled loops take them."""
        return self.times_s, self.values, self.cumulative

    def at(self, time_s: float) -> float:
        """g/kWh at a time; the first and the last value hold beyond the ends."""
        return float(self.values[max(0, int(np.searchsorted(self.times_s, time_s, side="right")) - 1)])

    def integral(self, time_s: npt.ArrayLike) -> Floats:
        """∫ intensity dt from the first time until `time_s`, in g·s/kWh."""
        time = np.asarray(time_s, np.float64)
        k = np.maximum(np.searchsorted(self.times_s, time, side="right") - 1, 0)
        found: Floats = self.cumulative[k] + self.values[k] * (time - self.times_s[k])
        return found

    def grams(self, watts: float, start_s: float, stop_s: float) -> float:
        """Grams of CO₂e of a constant power between two times."""
        return float(watts * (self.integral(stop_s) - self.integral(start_s)) / JOULES_PER_KWH)

    def scaled(self, factor: float) -> Carbon:
        """The same series, `factor` times as dirty."""
        return replace(self, values=self.values * factor)

    def from_time(self, start_s: float) -> Carbon:
        """The same series on a clock that reads 0 at `start_s`."""
        return replace(self, times_s=self.times_s - start_s, end_s=self.end_s - start_s)

    def covers(self, start_s: float, stop_s: float) -> bool:
        """Whether the series has a value for all times from `start_s` to `stop_s`; a single value holds for ever."""
        return len(self.times_s) == 1 or (start_s >= float(self.times_s[0]) and stop_s <= self.end_s)

    def check_covers(self, start_s: float, stop_s: float, where: str) -> None:
        """Raises InputError unless the series covers the times from `start_s` to `stop_s`."""
        if not self.covers(start_s, stop_s):
            raise InputError(
                f"found carbon intensities for {self.times_s[0]:,.0f} to {self.end_s:,.0f} s; expected them to cover the work, "
                f"which lasts from {start_s:,.0f} to {stop_s:,.0f} s",
                where=where,
            )


def grid(name: str, rng: np.random.Generator, hours: int = 48) -> Carbon:
    """A grid to play work on, hourly from time 0: "flat" (450 g/kWh), "solar-dip" (480, and 120 at noon) or "wind-noisy" (60 to 350).

    The wind is a first-order autoregression of `hours` draws; the two others draw nothing.
    """
    if name == "flat":
        return Carbon.flat(FLAT)
    if name == "solar-dip":
        clock = (np.arange(hours) + 0.5) % 24
        sun = np.maximum(0.0, np.sin(np.pi * (clock - 6) / 12))
        return Carbon.hourly(SOLAR[1] - (SOLAR[1] - SOLAR[0]) * sun)
    if name != "wind-noisy":
        raise unknown("grid", name, GRIDS)
    level, levels = 0.0, []
    for step in rng.standard_normal(hours).tolist():
        level = _MEMORY * level + math.sqrt(1 - _MEMORY**2) * step
        levels.append(level)
    return Carbon.hourly(WIND[0] + (WIND[1] - WIND[0]) / (1 + np.exp(-1.5 * np.array(levels))))


def read_carbon(path: str | Path, intensity: str = "life-cycle") -> Carbon:
    """Reads carbon intensities: an Electricity Maps export, or a table with `time` and `g_per_kwh`; times are seconds since 1970.

    An export has two intensities, of which `intensity` ("life-cycle" or "direct") chooses one. Gaps of at most six hours are interpolated
    and counted, longer ones are refused.
    """
    if intensity not in _ENDINGS:
        raise InputError(f'found "{intensity}"; expected life-cycle or direct', where="intensity")
    names = column_names(path, format="csv")
    lowered = {name.strip().lower(): name for name in names}
    if "g_per_kwh" in lowered and "time" in lowered:
        time, value = lowered["time"], lowered["g_per_kwh"]
    else:
        time = lowered.get("datetime (utc)", "")
        found = [
            name for low, name in lowered.items() if low.startswith("carbon intensity") and low.endswith(_ENDINGS[intensity])
        ]  # fmt: skip
        if not time or len(found) != 1:
            shown = ", ".join(names[:8]) + ("…" if len(names) > 8 else "")
            said = f"found the columns {shown}; expected Electricity Maps' \"Datetime (UTC)\" and \"Carbon intensity gCO₂eq/kWh "
            raise InputError(said + f"({'direct' if intensity == 'direct' else 'Life cycle'})\", or time and g_per_kwh", where=f"{path}:1")
        value = found[0]
    columns = [Column(time, "datetime", increasing=True), Column(value, least=0, most=1e5, default=math.nan)]
    table = read_table(path, columns, format="csv", row_limit=MOST_ROWS)
    times = table[time].astype("datetime64[us]").astype(np.int64) / 1e6
    return _filled(times, table[value], str(path))


def _filled(times: Floats, values: Floats, where: str) -> Carbon:
    """The series with its gaps interpolated at the usual step."""
    known = np.isfinite(values)
    t, v = times[known], values[known]
    if len(t) < 2:
        raise InputError(f"found {len(t)} carbon intensities; expected at least 2", where=where)
    gaps = np.diff(t)
    step = float(np.median(np.diff(times)))
    wide = int(gaps.argmax())
    if gaps[wide] > LONGEST_GAP_S and gaps[wide] > step:
        hours = gaps[wide] / 3600
        raise InputError(f"found no carbon intensity for {hours:.1f} h after {_moment(t[wide])}; expected gaps of at most 6 h", where=where)
    missing = np.maximum(np.rint(gaps / step).astype(np.int64) - 1, 0)
    added = int(missing.sum())
    if added > MOST_ROWS:
        raise InputError(f"found gaps that {added:,} interpolated values would fill; expected at most {MOST_ROWS:,}", where=where)
    if added:
        at = np.repeat(np.arange(len(gaps)), missing)
        place = np.arange(added) - np.repeat(np.cumsum(missing) - missing, missing) + 1
        share = place / (missing[at] + 1)
        t = np.concatenate((t, t[at] + share * gaps[at]))
        v = np.concatenate((v, v[at] + share * (v[at + 1] - v[at])))
        order = np.argsort(t, kind="stable")
        t, v = t[order], v[order]
    return Carbon(t, v, float(t[-1] + step), added)


def _moment(seconds: float) -> str:
    return str(np.datetime64(int(seconds), "s")) + "Z"
