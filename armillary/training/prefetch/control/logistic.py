"""A logistic regression that decides from the window and the last decision, and how it is fitted."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

from .loop import Decision, History, Static, Window

Floats = npt.NDArray[np.float64]

FEATURES = ("bias", "hit rate", "missed", "buffer", "remaining", "missed change", "hit rate change", "attempted", "moved")


def features(static: Static, window: Window, history: History) -> tuple[float, ...]:
    """What the classifier sees, in the order of FEATURES; shares lie between 0 and 1."""
    last = history[-1] if history else None
    missed = 0.0
    if last is not None and last.missed_before is not None and last.missed_after is not None:
        missed = last.missed_after - last.missed_before
    points = last.hit_rate_points if last is not None and last.hit_rate_points is not None else 0.0
    remaining = window.remaining / static.minibatches if static.minibatches and window.remaining >= 0 else 0.5
    return (
        1.0,
        window.hit_rate / 100,
        window.missed,
        static.capacity / static.halo if static.halo else 0.0,
        remaining,
        missed,
        points / 100,
        float(last is not None and last.attempted),
        last.share if last is not None else 0.0,
    )


@dataclass(frozen=True)
class ClassifierPolicy:
    """Replaces where the weighted features are positive, that is where the probability that it pays is above a half."""

    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.weights) != len(FEATURES):
            raise InputError(f"found {len(self.weights)} weights; expected {len(FEATURES)}: {', '.join(FEATURES)}")

    def probability(self, static: Static, window: Window, history: History) -> float:
        """The probability that a replacement pays."""
        score = math.fsum(w * x for w, x in zip(self.weights, features(static, window, history), strict=True))
        return 1 / (1 + math.exp(-min(max(score, -500.0), 500.0)))

    def decide(self, static: Static, window: Window, history: History) -> Decision:
        """Whether a replacement probably pays."""
        found = self.probability(static, window, history)
        expected = {"hit_rate": "increase", "comm": "decrease"} if found > 0.5 else {"hit_rate": "stagnant", "comm": "stagnant"}
        return Decision(found > 0.5, expected, f"it pays with probability {found:.2f}")


def fit(rows: npt.ArrayLike, labels: npt.ArrayLike, *, penalty: float = 1.0, steps: int = 50) -> Floats:
    """The weights that minimise the log loss plus penalty / 2 · |w|² without the first one (the bias), by Newton's method.

    rows: (examples, features), the first of which is 1. labels: (examples,), true where a replacement pays.
    """
    x, y = np.asarray(rows, float), np.asarray(labels, float)
    if x.ndim != 2 or y.shape != (len(x),) or not len(x):
        raise InputError("found examples and labels that do not go together")
    held = np.full(x.shape[1], penalty)
    held[0] = 1e-9
    w = np.zeros(x.shape[1])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-np.clip(x @ w, -500, 500)))
        gradient = x.T @ (p - y) + held * w
        change = np.linalg.solve((x.T * (p * (1 - p))) @ x + np.diag(held), gradient)
        w = w - change
        if np.abs(change).max() < 1e-10:
            break
    return w
