"""The power of a site's panels minute by minute, what a clear sky would give, and both by quarters of an hour as forecasters see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.scheduling.energy import Panels, clear_sky, zenith

Floats = npt.NDArray[np.float64]

#: Seconds of a slot of the play, and slots of a cell of forecasts and budgets.
SLOT_S, CELL = 60.0, 15
#: Minutes of the past that forecasters see, and cells ahead that planners see: 24 hours.
PAST, AHEAD = 720, 96
#: A cell in which a clear sky gives less than this share of its best is night.
NIGHT = 0.02
#: The power that a clear sky gives is that which this share of the daylight stays below.
CLEAR_QUANTILE = 0.98


@dataclass(frozen=True)
class Sunshine:
    """Watts per slot: `PAST` slots before the work begins, its slots, and `AHEAD` cells after its end."""

    watts: Floats
    clear_w: Floats

    def __post_init__(self) -> None:
        if len(self.watts) != len(self.clear_w) or len(self.watts) < PAST + CELL * (AHEAD + 1):
            raise InputError("found a series of the wrong length; expected 12 hours before the work and a day after it")
        if not np.isfinite(self.watts).all() or not np.isfinite(self.clear_w).all() or min(self.watts.min(), self.clear_w.min()) < 0:
            raise InputError("found a power below 0 or none; expected watts of at least 0")

    @property
    def slots(self) -> int:
        """Slots of the work."""
        return len(self.watts) - PAST - CELL * AHEAD

    @property
    def during(self) -> Floats:
        """Watts in the slots of the work."""
        return self.watts[PAST : PAST + self.slots]

    @property
    def cells(self) -> tuple[Floats, Floats]:
        """Mean watts, and those of a clear sky, of each quarter of an hour from 12 hours before the work on."""
        many = len(self.watts) // CELL
        return self.watts[: many * CELL].reshape(-1, CELL).mean(1), self.clear_w[: many * CELL].reshape(-1, CELL).mean(1)

    def scaled(self, factor: float) -> Sunshine:
        """The same sky over panels that are `factor` times as large."""
        return Sunshine(self.watts * factor, self.clear_w * factor)


def length(slots: int) -> int:
    """Values of a series for so many slots of work."""
    return PAST + slots + CELL * AHEAD


def over(
    place: tuple[float, float], start_s: float, slots: int, clear: Floats, panels: Panels, air_c: float = 15.0
) -> Sunshine:
    """Sunshine at a place (degrees north and east) from `start_s` (seconds since 1970) on, with one clearness per slot."""
    moments = start_s + SLOT_S * (np.arange(length(slots)) - PAST + 0.5)
    light = clear_sky(zenith(moments, *place))
    return Sunshine(panels.watts(light * clear, air_c), panels.watts(light, air_c))


def measured(place: tuple[float, float], start_s: float, slots: int, watts: Floats) -> Sunshine:
    """Sunshine from a measured series on the slots; what a clear sky gives there is scaled to its brightest moments."""
    moments = start_s + SLOT_S * (np.arange(length(slots)) - PAST + 0.5)
    return Sunshine(*scaled_clear(place, moments, watts))


def scaled_clear(place: tuple[float, float], moments: npt.NDArray[Any], watts: Floats) -> tuple[Floats, Floats]:
    """Measured watts, and those of a clear sky at the same moments, scaled so that hardly any daylight is brighter."""
    light = Panels(1.0).watts(clear_sky(zenith(moments, *place)))
    day = light > 0.2 * max(float(light.max()), 1e-9)
    scale = float(np.quantile(watts[day] / light[day], CLEAR_QUANTILE)) if day.any() else 0.0
    return watts, light * scale
