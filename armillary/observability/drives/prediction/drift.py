"""The drift alarm: do the networks look at other attributes on new failures than they did in training?

The attention of a failing drive is the sum of |x · dL/dx| over its last windows, by attribute, as shares of one. What is normal is the
spread among the failing drives of training: two samples of them, one as large as the new one and one as large as theirs, are drawn a
thousand times, and the distance of their means (half the sum of absolute differences) is noted. New failures that lie farther from
training than 99 % of these raise the alarm.
It needs PyTorch, and failures of the newer fleet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.streams import stream

from ..features.daily import Daily, daily
from ..features.windows import ends, places
from ..fleets.fleet import Array, Fleet
from ..judging.lesson import Lesson
from ..judging.split import labels
from ..networks.partition import place
from ..networks.scorer import Networks, Part

if TYPE_CHECKING:
    from .predictor import Predictor

#: New failing drives without which nothing is said; failing drives of training that are kept; windows of each that are looked at.
FEWEST, MOST_DRIVES, WINDOWS = 10, 300, 10
DRAWS, CERTAIN = 1000, 0.99


@dataclass(frozen=True)
class Drift:
    """What is said of one partition: `distance` from training beside the `band` that 99 % of equal fleets stay in."""

    models: tuple[str, ...]
    failures: int
    distance: float
    band: float
    #: The attributes whose share rose most, and fell most.
    rose: int = 0
    fell: int = 0

    @property
    def refit(self) -> bool:
        """Whether the alarm is raised."""
        return self.distance > self.band

    def __str__(self) -> str:
        """A sentence for the operator."""
        names = ", ".join(self.models)
        if not np.isfinite(self.band):
            return f"{names}: {self.failures} failures are too few to tell whether the signs changed (at least {FEWEST})"
        if not self.refit:
            return f"{names}: the signs of failure are those of training (distance {self.distance:.3f}, band {self.band:.3f})"
        moved = f"attribute {self.rose} says more than in training and {self.fell} less"
        return f"refit {names}: {moved} (distance {self.distance:.3f}, band {self.band:.3f})"


def drift(predictor: Predictor, fleet: Fleet) -> list[Drift]:
    """One answer per partition that drives of the fleet belong to."""
    days = daily(fleet)
    names = list(predictor.networks.parts)
    which = [place(model, names) for model in fleet.models]
    found = []
    for name in names:
        models = [i for i, of in enumerate(which) if of == name]
        rows = ends(days, 0, fleet.days)
        rows = rows[np.isin(fleet.model[days.drive[rows]], models)]
        rows = rows[labels(fleet, days.drive[rows], days.day[rows], predictor.horizon)]
        if models:
            seen = attention(predictor.networks, predictor.networks.parts[name], len(predictor.attributes), fleet, days, rows)
            found.append(_compared(tuple(fleet.models[i] for i in models), predictor.attributes, predictor.attention[name], seen))
    return found


def _compared(models: tuple[str, ...], attributes: tuple[int, ...], usual: Array, seen: Array) -> Drift:
    if len(seen) < FEWEST or len(usual) < FEWEST:
        return Drift(models, min(len(seen), len(usual)), 0.0, np.inf)
    mean, now = usual.mean(0), seen.mean(0)
    rng = stream(0, "observability", "drives", "drift")
    # Both means are of samples, so both are drawn.
    newer, older = (usual[rng.integers(0, len(usual), (DRAWS, count))].mean(1) for count in (len(seen), len(usual)))
    band = float(np.quantile(0.5 * np.abs(newer - older).sum(1), CERTAIN))
    change = (now - mean)[: len(attributes)]
    distance = float(0.5 * np.abs(now - mean).sum())
    return Drift(models, len(seen), distance, band, attributes[int(np.argmax(change))], attributes[int(np.argmin(change))])


def attention_of(networks: Networks, lesson: Lesson) -> dict[str, Array]:
    """The attention of the failing drives of training and validation, per partition."""
    rows = np.concatenate([ends(lesson.days, *lesson.split.train), lesson.validation])
    rows = np.unique(rows[lesson.of(rows)])
    fleet, found = lesson.fleet, {}
    for name, part in networks.parts.items():
        models = [fleet.models.index(model) for model in part.models]
        mine = rows[np.isin(fleet.model[lesson.days.drive[rows]], models)]
        found[name] = attention(networks, part, len(fleet.attributes), fleet, lesson.days, mine)
    return found


def attention(networks: Networks, part: Part, attributes: int, fleet: Fleet, days: Daily, rows: Array) -> Array:
    """[failing drives, attributes + 1] shares; the last column is that of features without an attribute.

    Of each drive the windows nearest to its failure count, because what they show does not depend on how long the log is.
    """
    ahead = fleet.failure[days.drive[rows]] - days.day[rows]
    order = np.lexsort((ahead, days.drive[rows]))
    rows = rows[order]
    drives, first, place_of = np.unique(days.drive[rows], return_index=True, return_inverse=True)
    near = (np.arange(len(rows)) - first[place_of] < WINDOWS) & (place_of < MOST_DRIVES)
    rows, place_of = rows[near], place_of[near]
    out = np.zeros((min(len(drives), MOST_DRIVES), attributes + 1))
    if not len(rows):
        return out
    owner = np.minimum(part.scaling.columns // 4, attributes)
    for arrays, guide in part.members:
        given = _contribution(networks, arrays, guide, part, days, rows)
        by_attribute = np.zeros((len(rows), attributes + 1))
        for column, a in enumerate(owner.tolist()):
            by_attribute[:, a] += given[:, column]
        np.add.at(out, place_of, by_attribute)
    return np.asarray(out / np.maximum(out.sum(1, keepdims=True), 1e-300))


def _contribution(networks: Networks, arrays: dict[str, Array], guide: Array, part: Part, days: Daily, rows: Array) -> Array:
    """[windows, features] sums over days of |x · dL/dx| for windows of failing drives, with L the logarithmic loss."""
    import torch
    from torch.nn import functional as fn

    from armillary.learn.determinism import deterministic

    from ..networks.parts import made

    how = networks.how
    module: Any = made(how.kind, len(part.scaling.columns), how.width, how.heads, 0)
    module.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in arrays.items()})
    found = []
    with deterministic():
        for at in range(0, len(rows), 512):
            used = places(days, rows[at : at + 512], how.length)
            x = torch.from_numpy(part.scaling.rows(days, used.ravel()).reshape(*used.shape, -1)).requires_grad_()
            logit = module(x * torch.from_numpy(np.array(guide)))
            loss = fn.binary_cross_entropy_with_logits(logit, torch.ones_like(logit), reduction="sum")
            torch.autograd.backward(loss)
            assert x.grad is not None
            found.append((x.detach() * x.grad).abs().sum(1).numpy())
    return np.concatenate(found).astype(np.float64)
