"""How a network over windows is trained: which windows it sees, a loss whose class weight follows the training, and weights of features.

An epoch sees a share of the positive windows, of the others, and those others that the network took for failures. After each epoch the
validation windows decide the class weight of the next (`next_alpha`), whether the network is the best so far, and when to stop. What a
feature contributed to the loss of positive and hard windows (`|x · dL/dx|`) becomes the weight by which it is multiplied from then on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.nn import functional as fn

from armillary.learn.determinism import deterministic
from armillary.learn.optimiser import Adam
from armillary.streams import stream

from ..features.windows import places
from ..fleets.fleet import NEVER, Array
from ..judging.alarms import ALLOWED, best_cut
from ..judging.lesson import Lesson
from .parts import made
from .settings import Settings

#: Healthy validation windows that are looked at after an epoch, per partition.
WATCHED = 250
SHARE_HARD, HARD_AFTER = 0.05, 2
LAMBDA_EPOCHS, SMOOTHING, LOW, HIGH = 3, 0.7, 0.2, 5.0


@dataclass(frozen=True, eq=False)
class Trained:
    """One trained member: arrays by name, the weights of features, and what happened in each epoch."""

    arrays: dict[str, Array]
    guide: Array
    history: list[dict[str, float]] = field(default_factory=list)


def next_alpha(alpha: float, best_recall: float, recall: float, eta: float) -> float:
    """The class weight of failures for the next epoch: it rises while recall is below the one at which F½ is greatest."""
    return float(min(0.99, max(0.5, alpha * math.exp(eta * (best_recall - recall)))))


def next_guide(smoothed: Array | None, contribution: Array, epoch: int) -> tuple[Array, Array]:
    """(smoothed contributions, weights) after an epoch, counted from 0, from each feature's contribution to the loss."""
    mean = float(contribution.mean())
    g = contribution / mean if mean > 0 else np.ones_like(contribution)
    smoothed = g if smoothed is None else SMOOTHING * smoothed + (1 - SMOOTHING) * g
    strength = min(1.0, (epoch + 1) / LAMBDA_EPOCHS)
    return smoothed, np.clip(1 + strength * (smoothed - 1), LOW, HIGH).astype(np.float32)


def focal(logits: Any, target: Any, alpha: float, gamma: float) -> Any:
    """The mean of -α(y) (1 - p(y))^γ log p(y), with α for failures and 1 - α for the others, twice so that α = ½ is the plain one."""
    plain = fn.binary_cross_entropy_with_logits(logits, target, reduction="none")
    weight = 2 * torch.where(target > 0.5, alpha, 1 - alpha)
    return (weight * (1 - torch.exp(-plain)) ** gamma * plain).mean()


def train(
    lesson: Lesson, how: Settings, table: Array, rows: Array, held: Array, name: str, progress: Callable[[float], None] | None = None
) -> Trained:
    """Trains one network on the training rows of a partition; `held` are its validation rows, `table` its scaled features."""
    rng = stream(lesson.seed, "windows", how.kind, name)
    module = made(how.kind, table.shape[1], how.width, how.heads, int(stream(lesson.seed, "network", how.kind, name).integers(1 << 31)))
    data = torch.from_numpy(table)
    labels = lesson.of(rows)
    positive, others = rows[labels], rows[~labels]
    watched, watch = _watched(lesson, held, rng)
    optimiser = Adam(module.parameters(), how.rate, weight_decay=1e-4)
    guide, smoothed, alpha = torch.ones(table.shape[1]), None, 0.75
    hard = rows[:0]
    best, kept, kept_guide, history, since = -1.0, _copy(module), guide.clone(), list[dict[str, float]](), 0
    epochs = how.epochs if not lesson.most_epochs else min(how.epochs, lesson.most_epochs)
    with deterministic():
        for epoch in range(epochs):
            chosen, target, copied = _epoch(lesson, positive, others, hard, rng)
            given = torch.zeros(table.shape[1], dtype=torch.float64)
            optimiser.lr = how.rate * 0.5 * (1 + math.cos(math.pi * epoch / epochs))
            module.train()
            for at in range(0, len(chosen), how.batch):
                part = slice(at, at + how.batch)
                where = torch.from_numpy(places(lesson.days, chosen[part], how.length))
                x = data[where]
                noisy = torch.from_numpy(copied[part])
                if noisy.any():
                    x[noisy] *= torch.from_numpy(1 + 0.01 * rng.standard_normal((int(noisy.sum()), 1, x.shape[2])).astype(np.float32))
                y = torch.from_numpy(target[part].astype(np.float32))
                x.requires_grad_(how.guidance)
                loss = focal(module(x * guide), y, alpha, how.gamma)
                optimiser.clear()
                torch.autograd.backward(loss)
                if how.guidance and x.grad is not None:
                    telling = (y > 0.5) | torch.from_numpy(np.isin(chosen[part], hard))
                    given += (x.detach() * x.grad).abs()[telling].sum((0, 1)).to(torch.float64)
                _clip(module, 1.0)
                optimiser.step()
                if progress is not None:
                    progress((epoch + at / len(chosen)) / epochs)
            value, recall, best_recall = _validated(module, lesson, data, guide, watched, watch, how)
            history.append({"epoch": epoch, "f05": value, "recall": recall, "best_recall": best_recall, "alpha": alpha})
            since += 1
            if value > best:
                best, kept, kept_guide, since = value, _copy(module), guide.clone(), 0
            if since > how.patience:
                break
            if how.dynamic:
                alpha = next_alpha(alpha, best_recall, recall, how.eta)
            if how.guidance:
                smoothed, weights = next_guide(smoothed, given.numpy(), epoch)
                guide = torch.from_numpy(weights)
            if epoch + 1 >= HARD_AFTER:
                hard = _hard(module, lesson, data, guide, others, how, rng)
    return Trained({name: value.numpy().copy() for name, value in kept.items()}, kept_guide.numpy().copy(), history)


def _epoch(lesson: Lesson, positive: Array, others: Array, hard: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """(rows, labels, whether jittered) of an epoch in random order: one positive window per drive and three days, a quarter of the others.

    Positive windows are repeated with noise until there is one for ten others.
    """
    days = lesson.days
    order = rng.permutation(positive)
    block = days.drive[order].astype(np.int64) * 100_000 + (days.day[order] + int(rng.integers(3))) // 3
    _, first = np.unique(block, return_index=True)
    chosen = order[np.sort(first)]
    rest = np.concatenate([rng.permutation(others)[: max(1, len(others) // 4)], hard])
    lacking = max(0, -(-len(rest) // 10) - len(chosen))
    copies = rng.choice(positive, lacking) if len(positive) else positive[:0]
    rows = np.concatenate([chosen, copies, rest])
    target = np.arange(len(rows)) < len(chosen) + len(copies)
    copied = (np.arange(len(rows)) >= len(chosen)) & target
    mixed = rng.permutation(len(rows))
    return rows[mixed], target[mixed], copied[mixed]


def _watched(lesson: Lesson, held: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """(rows, kind) of validation windows that are looked at after each epoch: every third day of failing drives, one of some healthy ones.

    kind 1 fails within the horizon, 0 is healthy; windows of drives that fail later are left out.
    """
    days, fleet = lesson.days, lesson.fleet
    label = lesson.of(held)
    healthy = np.flatnonzero(~label & (fleet.failure[days.drive[held]] >= NEVER))
    _, one = np.unique(days.drive[held[rng.permutation(healthy)]], return_index=True)
    few = rng.permutation(healthy)[: min(WATCHED, len(one))]
    failing = np.flatnonzero(label & (days.day[held] % 3 == 0))
    rows = np.concatenate([held[failing], held[few]])
    return rows, np.arange(len(rows)) < len(failing)


def _validated(module: Any, lesson: Lesson, data: Any, guide: Any, rows: Array, kind: Array, how: Settings) -> tuple[float, float, float]:
    """(best F½, recall at probability ½, recall at which F½ is greatest), by drives."""
    score = _scores(module, lesson, data, guide, rows, how)
    drive = lesson.days.drive[rows]
    failing, place = np.unique(drive[kind], return_inverse=True)
    right = np.full(len(failing), -np.inf)
    np.maximum.at(right, place, score[kind])
    vain = score[~kind]
    if not len(right) or not len(vain):
        return 0.0, 0.0, 0.0
    healthy = int((lesson.fleet.failure >= NEVER).sum())
    weight = lesson.fleet.weight * max(1.0, healthy / max(1, len(vain)) / 3)
    _, value, best_recall = best_cut(right, right, vain, weight, max(ALLOWED, 1.5 / len(vain)))
    return value, float((right >= 0).mean()), best_recall


def _hard(module: Any, lesson: Lesson, data: Any, guide: Any, others: Array, how: Settings, rng: np.random.Generator) -> Array:
    """The training windows without failure with the highest scores, 5 % of a quarter of them."""
    some = rng.permutation(others)[: max(20, len(others) // 4)]
    score = _scores(module, lesson, data, guide, some, how)
    return some[np.argsort(-score, kind="stable")[: max(1, int(SHARE_HARD * len(some)))]]


def _scores(module: Any, lesson: Lesson, data: Any, guide: Any, rows: Array, how: Settings) -> Array:
    module.eval()
    found = []
    with torch.no_grad():
        for at in range(0, len(rows), 1024):
            where = torch.from_numpy(places(lesson.days, rows[at : at + 1024], how.length))
            found.append(module(data[where] * guide).numpy())
    return np.concatenate(found).astype(np.float64) if found else np.empty(0)


def _clip(module: Any, most: float) -> None:
    """Scales all gradients down so that their norm is at most `most`."""
    with torch.no_grad():
        gradients = [p.grad for p in module.parameters() if p.grad is not None]
        norm = float(torch.sqrt(sum((g * g).sum() for g in gradients)))
        if norm > most:
            for g in gradients:
                g *= most / norm


def _copy(module: Any) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}
