"""Trains the forecaster: quantiles of clearness by pinball loss, on sixty days of drawn skies or of a user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.learn import Lstm, Model, Recipe, fit, quantiles
from armillary.scheduling.energy import WEATHERS, Panels, clearness
from armillary.scheduling.green.problem.sunshine import SLOT_S, length, over
from armillary.streams import stream

from .forecaster import COMING, HIDDEN, LEVELS, SEEN, clearness_of, windows

Floats = npt.NDArray[np.float64]
#: Watts and clear-sky watts per quarter of an hour, over some days.
Days = tuple[Floats, Floats]
BATCH, LR = 256, 4e-3
#: Stands where a clearness cannot be seen.
NOT_SEEN = -9.0
#: Skies of the training days: latitudes, and days at each; the weather that is preferred goes round, none included.
LATITUDES, DAYS_EACH = (-45.0, -35.0, -20.0, 10.0, 25.0, 35.0, 40.0, 45.0, 50.0, 52.0, 55.0, 58.0), 5


def training_days() -> list[Days]:
    """Sixty drawn days: five at each of twelve latitudes, at any time of the year."""
    found = []
    for i, latitude in enumerate(LATITUDES):
        rng = stream(0, "green", "train", str(latitude))
        slots = DAYS_EACH * 1440
        start = 1672531200.0 + 86400.0 * int(rng.integers(0, 365))
        clear = clearness(rng, length(slots), SLOT_S, prefers=("", *WEATHERS)[i % 4])
        sky = over((latitude, 0.0), start, slots, clear, Panels(1.0))
        power, best = sky.cells
        found.append((power[: DAYS_EACH * 96], best[: DAYS_EACH * 96]))
    return found


def train(recipe: Recipe, progress: Callable[[float], None]) -> Model:
    """Trains the model of a recipe on the drawn days."""
    return trained(training_days(), recipe.parameters["steps"], recipe.seed, progress)


def trained(days: Sequence[Days], steps: int, seed: int, progress: Callable[[float], None] | None = None) -> Model:
    """Trains a forecaster on stretches of days, each a pair of watts and clear-sky watts per quarter of an hour."""
    inputs, targets, clear, held = [], [], [], []
    for watts, best in days:
        known, day = clearness_of(watts, best)
        rows = len(known) - SEEN - COMING
        if rows < 1:
            continue
        inputs.append(windows(watts, best)[:rows])
        coming = np.lib.stride_tricks.sliding_window_view(known, COMING)[SEEN : SEEN + rows]
        lit = np.lib.stride_tricks.sliding_window_view(day, COMING)[SEEN : SEEN + rows]
        # What clouds do at night is not seen, so it is not learned either.
        targets.append(np.where(lit, coming - inputs[-1][:, -1:, 0], NOT_SEEN).astype(np.float32))
        clear.append(known[day])
        # The last windows of each stretch are set aside, those in between belong to neither side.
        held.append(np.select([np.arange(rows) >= 0.85 * rows, np.arange(rows) >= 0.85 * rows - COMING], [2, 1], 0))
    x, y, part = np.concatenate(inputs), np.concatenate(targets), np.concatenate(held)
    network = Lstm(2, HIDDEN, COMING * len(LEVELS), seed=seed)
    fitted = fit(network, (x[part == 0], y[part == 0]), _loss(), steps=steps, batch=BATCH, lr=LR, seed=seed,
                 validation=(x[part == 2], y[part == 2]), progress=progress)  # fmt: skip
    climatology = np.quantile(np.concatenate(clear), LEVELS)
    return Model.joined({"clearness": fitted.model()}, {"climatology": climatology}, steps=fitted.steps, seed=seed,
                        metrics={"validation_loss": fitted.validation_loss})  # fmt: skip


def _loss() -> Any:
    """Pinball loss of the quantiles over the cells that are day."""
    import torch

    levels = torch.tensor(LEVELS)

    def loss(raw: Any, target: Any) -> Any:
        error = target[..., None] - quantiles(raw.reshape(len(raw), COMING, len(LEVELS)))
        lit = (target > NOT_SEEN)[..., None]
        value = torch.where(lit, torch.maximum(levels * error, (levels - 1) * error), torch.zeros(()))
        return value.sum() / (lit.sum() * len(LEVELS)).clamp(min=1)

    return loss

