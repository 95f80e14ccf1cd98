"""Forecasts of the power of panels: an LSTM over the last twelve hours of clearness and clear-sky power, persistence, and climatology.

All forecast clearness, the power over that of a clear sky, and multiply it by the clear sky, so night is exactly 0. The LSTM gives four
quantiles of the next six hours in quarters of an hour, as differences from the last clearness that was seen. Beyond them, up to a day
ahead, the climatology of the training days takes over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown
from armillary.learn import Model, obtain
from armillary.scheduling.green.problem.sunshine import AHEAD, CELL, NIGHT, PAST, Sunshine

Floats = npt.NDArray[np.float64]

#: Quantiles that are learned, cells that the network sees and forecasts, and its hidden units.
LEVELS = (0.1, 0.3, 0.5, 0.9)
SEEN, COMING, HIDDEN = PAST // CELL, 24, 32
METHODS = ("lstm", "persistence", "climatology")
#: Clearness beyond which a cell's is cut; thin clouds reflect.
MOST_CLEARNESS = 1.5


def clearness_of(watts: Floats, clear_w: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Clearness per cell, that of the last daylight at night, and which cells are day.

    Before the first daylight it is that of the first one's, or 0.5 if there is none.
    """
    day = clear_w > NIGHT * max(float(clear_w.max()), 1e-12)
    found = np.where(day, np.clip(watts / np.where(day, clear_w, 1.0), 0.0, MOST_CLEARNESS), 0.5)
    last = np.maximum.accumulate(np.where(day, np.arange(len(day)), -1))
    return np.where(last >= 0, found[np.maximum(last, 0)], 0.5), day


def windows(watts: Floats, clear_w: Floats) -> npt.NDArray[np.float32]:
    """What the network sees at each cell from `SEEN` on: [cells, SEEN, 2], clearness and clear-sky power over its best."""
    clearness, _ = clearness_of(watts, clear_w)
    both = np.stack([clearness, clear_w / max(float(clear_w.max()), 1e-12)], 1).astype(np.float32)
    found: npt.NDArray[np.float32] = np.lib.stride_tricks.sliding_window_view(both, SEEN, axis=0).transpose(0, 2, 1)
    return np.ascontiguousarray(found)


def uncrossed(raw: Floats) -> Floats:
    """Quantiles [..., levels] of the difference from the network's outputs: the first as it is, each further one plus a softplus."""
    steps = np.logaddexp(0.0, raw[..., 1:]).cumsum(-1)
    return np.concatenate([raw[..., :1], raw[..., :1] + steps], -1)


@dataclass(frozen=True)
class Forecaster:
    """A trained model with its climatology, or with `method` one of the plain forecasts of the same training days."""

    model: Model
    method: str = "lstm"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise unknown("forecast", self.method, METHODS)

    @staticmethod
    def shipped(method: str = "lstm") -> Forecaster:
        """The forecaster that comes with the package."""
        from armillary.scheduling.green.greenk8s import GreenK8s

        return Forecaster(obtain(GreenK8s().recipe()), method)

    def clearness(self, watts: Floats, clear_w: Floats, level: float) -> Floats:
        """Forecast clearness [cells, COMING] at a quantile level, for each cell from `SEEN` on; cells are quarters of an hour."""
        seen = windows(watts, clear_w)
        climate = float(np.interp(level, LEVELS, self.model.arrays["climatology"]))
        if self.method == "climatology":
            return np.full((len(seen), COMING), climate)
        if self.method == "persistence":
            return np.repeat(seen[:, -1:, 0].astype(np.float64), COMING, 1)
        raw = self.model.frozen()["clearness"](seen).astype(np.float64).reshape(len(seen), COMING, len(LEVELS))
        found = np.clip(seen[:, -1, 0].astype(np.float64)[:, None, None] + uncrossed(raw), 0.0, MOST_CLEARNESS)
        at = min(max(level, LEVELS[0]), LEVELS[-1])
        k = min(int(np.searchsorted(LEVELS, at, side="right")) - 1, len(LEVELS) - 2)
        share = (at - LEVELS[k]) / (LEVELS[k + 1] - LEVELS[k])
        mixed: Floats = found[..., k] * (1 - share) + found[..., k + 1] * share
        return mixed

    def watts(self, sun: Sunshine, level: float = 0.3) -> Floats:
        """Forecast watts [cells of the work, AHEAD] at a quantile level; row k was made when cell k begins, and column 0 is that cell."""
        power, clear = sun.cells
        many = -(-sun.slots // CELL)
        # Only the past is looked at: the window of row k ends with cell k − 1, whatever stands behind it in the arrays.
        near = self.clearness(power, clear, level)[:many]
        far = float(np.interp(level, LEVELS, self.model.arrays["climatology"]))
        found = np.empty((many, AHEAD))
        for j in range(AHEAD):
            ahead = clear[SEEN + j : SEEN + j + many]
            found[:, j] = ahead * (near[:, j] if j < COMING else far)
        return found


def perfect(sun: Sunshine) -> Floats:
    """The watts that will come, [cells of the work, AHEAD]."""
    power, _ = sun.cells
    many = -(-sun.slots // CELL)
    found: Floats = np.stack([power[SEEN + j : SEEN + j + many] for j in range(AHEAD)], 1)
    return found


def nmae(forecast: Floats, sun: Sunshine, ahead: int = 4) -> float:
    """Mean absolute error of a forecast `ahead` cells ahead (an hour), over the mean power; nan without any power."""
    power, _ = sun.cells
    truth = power[SEEN + ahead : SEEN + ahead + len(forecast)]
    if truth.sum() <= 0:
        raise InputError("found no power; expected some to judge a forecast by")
    return float(np.abs(forecast[:, ahead] - truth).sum() / truth.sum())


def of_model(model: Any, method: str = "lstm") -> Forecaster:
    """The forecaster of a model, checked for the shape that this arena's have."""
    shapes = model.config.shapes()
    wanted = {"climatology": (len(LEVELS),), "clearness.head.weight": (COMING * len(LEVELS), HIDDEN)}
    if any(shapes.get(name) != shape for name, shape in wanted.items()):
        raise InputError("found a model of another kind; expected a forecaster of clearness")
    return Forecaster(model, method)
