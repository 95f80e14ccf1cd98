"""The sun over a place: where it stands, what a clear sky lets through, how clouds come and go, and what panels make of the rest.

Irradiance on the ground is clear sky times a clearness between 0 and about 1. The clear sky is Haurwitz's formula of the zenith angle.
The zenith comes from the low-precision almanac, which is right to 0.01° between 1950 and 2050. Clearness is a chain of three weathers
(clear, broken, overcast) with an autoregression inside each of them; stays and levels are chosen.

Haurwitz, Insolation in relation to cloudiness and cloud density, Journal of Meteorology 1945. Low-precision formulas for the Sun, The
Astronomical Almanac, section C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown
from armillary.kernels import loop

Floats = npt.NDArray[np.float64]

#: Seconds since 1970 of the epoch J2000 (2000-01-01 12:00 UTC).
J2000_S = 946_728_000.0
#: The three weathers, their mean stays in hours, mean clearness, spread of the clearness, and the minutes over which it is remembered.
WEATHERS = ("clear", "broken", "overcast")
STAY_H, LEVEL, SPREAD, MEMORY_MIN = (3.0, 1.0, 4.0), (0.95, 0.65, 0.25), (0.03, 0.15, 0.08), 15.0
#: Where the sky prefers one weather, that weather stays this many times as long (chosen).
PREFERRED = 4.0
#: Clearness of a sky that is not night; above 1 where clouds reflect.
LEAST_CLEARNESS, MOST_CLEARNESS = 0.02, 1.2


def zenith(time_s: npt.ArrayLike, latitude: float, longitude: float) -> Floats:
    """Degrees between the zenith and the centre of the sun, without refraction; times in seconds since 1970 (UTC), degrees north and east.

    With n days since J2000: mean longitude L = 280.460° + 0.9856474° n, mean anomaly g = 357.528° + 0.9856003° n, ecliptic longitude
    λ = L + 1.915° sin g + 0.020° sin 2g, obliquity ε = 23.439° − 0.0000004° n; declination sin δ = sin ε sin λ, right ascension
    tan α = cos ε tan λ, and the hour angle from the sidereal time.
    """
    check_place(latitude, longitude)
    n = (np.asarray(time_s, np.float64) - J2000_S) / 86400.0
    mean = np.radians((280.460 + 0.9856474 * n) % 360.0)
    anomaly = np.radians((357.528 + 0.9856003 * n) % 360.0)
    ecliptic = mean + np.radians(1.915) * np.sin(anomaly) + np.radians(0.020) * np.sin(2 * anomaly)
    tilt = np.radians(23.439 - 0.0000004 * n)
    declination = np.arcsin(np.sin(tilt) * np.sin(ecliptic))
    ascension = np.arctan2(np.cos(tilt) * np.sin(ecliptic), np.cos(ecliptic))
    sidereal = np.radians((280.46062 + 360.98564737 * n + longitude) % 360.0)
    hour = sidereal - ascension
    phi = math.radians(latitude)
    height = np.sin(phi) * np.sin(declination) + np.cos(phi) * np.cos(declination) * np.cos(hour)
    found: Floats = np.degrees(np.arccos(np.clip(height, -1.0, 1.0)))
    return found


def clear_sky(zenith_deg: npt.ArrayLike) -> Floats:
    """W/m² on level ground under a clear sky, 1098·cosθ·exp(−0.059/cosθ) (Haurwitz); exactly 0 while the sun is down."""
    height = np.cos(np.radians(np.asarray(zenith_deg, np.float64)))
    up = height > 1e-9
    safe = np.where(up, height, 1.0)
    found: Floats = np.where(up, 1098.0 * safe * np.exp(-0.059 / safe), 0.0)
    return found


def clearness(rng: np.random.Generator, steps: int, step_s: float = 60.0, prefers: str = "", start: str = "") -> Floats:
    """Clearness at `steps` moments that are `step_s` seconds apart.

    prefers: one of the weathers, which stays four times as long as its usual mean, or none. The chain leaves a weather for either of the
    other two with equal probability. start: the first weather; drawn by the time spent in each otherwise.
    """
    for name in (prefers, start):
        if name and name not in WEATHERS:
            raise unknown("weather", name, WEATHERS)
    stay = np.array([h * (PREFERRED if name == prefers else 1.0) for name, h in zip(WEATHERS, STAY_H)]) * 3600.0 / step_s
    first = WEATHERS.index(start) if start else int(rng.choice(3, p=stay / stay.sum()))
    leave, turn, noise = rng.random(steps), rng.random(steps), rng.standard_normal(steps)
    return _chain(first, 1.0 / np.maximum(stay, 1.0), math.exp(-step_s / (60.0 * MEMORY_MIN)), np.array(LEVEL), np.array(SPREAD),
                  leave, turn, noise)  # fmt: skip


@loop
def _chain(first: int, leave_p: Any, memory: float, level: Any, spread: Any, leave: Any, turn: Any, noise: Any) -> Any:
    out = np.empty(len(leave))
    state, deviation = first, noise[0] if len(noise) else 0.0
    for i in range(len(leave)):
        if i > 0:
            if leave[i] < leave_p[state]:
                state = (state + (1 if turn[i] < 0.5 else 2)) % 3
            deviation = memory * deviation + math.sqrt(1 - memory * memory) * noise[i]
        out[i] = min(max(level[state] + spread[state] * deviation, LEAST_CLEARNESS), MOST_CLEARNESS)
    return out


@dataclass(frozen=True)
class Panels:
    """Solar panels that lie flat: P = area·efficiency·G·(1 − 0.004·(T_cell − 25)), T_cell = T_air + 0.03·G, never below 0.

    area_m2: the area. efficiency: at 25 °C (chosen: 0.2, a usual module of silicon).
    """

    area_m2: float
    efficiency: float = 0.2

    def __post_init__(self) -> None:
        if not (math.isfinite(self.area_m2) and self.area_m2 >= 0 and 0 < self.efficiency <= 1):
            raise InputError(
                f"found {self.area_m2:g} m² and an efficiency of {self.efficiency:g}; expected at least 0 m² and a share above 0",
                where="panels",
            )

    def watts(self, irradiance: npt.ArrayLike, air_c: npt.ArrayLike = 15.0) -> Floats:
        """Watts for irradiances in W/m² and air temperatures in °C."""
        light = np.asarray(irradiance, np.float64)
        cell = np.asarray(air_c, np.float64) + 0.03 * light
        found: Floats = np.maximum(0.0, self.area_m2 * self.efficiency * light * (1 - 0.004 * (cell - 25.0)))
        return found


def check_place(latitude: float, longitude: float) -> None:
    """Raises InputError unless the degrees are those of a place on Earth."""
    if not -90 <= latitude <= 90:
        raise InputError(f"found {latitude:g}; expected −90 to 90 degrees north", where="latitude")
    if not -180 <= longitude <= 180:
        raise InputError(f"found {longitude:g}; expected −180 to 180 degrees east", where="longitude")
