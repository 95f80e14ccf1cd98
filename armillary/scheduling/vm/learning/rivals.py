"""What the pairwise predictors share: VM and host features side by side, a trained function of them, and its training.

They read the same numbers as TRACE and learn from the same pairs, but every pair of a VM and a host is one evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from armillary.learn import ArraysConfig, Model, Recipe
from armillary.learn.products import product
from armillary.scheduling.vm.problem.fleet import Floats, Ints
from armillary.scheduling.vm.problem.ranker import Ranker
from armillary.scheduling.vm.problem.state import WIDTH_P, WIDTH_V, State

from .samples import Singles, Snapshot, pairs, schema, snapshots

#: Pairs that are evaluated together.
TOGETHER = 1 << 16
#: Ridge regression's weight, trees and leaves of boosting, hidden layers and steps of the perceptron.
RIDGE, TREES, LEAVES, HIDDEN, STEPS, BATCH = 1.0, 300, 31, (128, 64), 1200, 1024
UNIT = 0.02


class PairRanker(Ranker):
    """Predicts QoS of every pair by itself."""

    predicts = True

    def __init__(self, predict: Callable[[Singles], Any]) -> None:
        self.predict = predict

    def scores(self, state: State, vms: Ints) -> Floats:
        found = self.new_scores(state, vms)
        rows = np.flatnonzero(state.host[vms] >= 0)
        if len(rows):
            placed = vms[rows]
            own = np.concatenate([state.x[placed], state.without(placed)], axis=1).astype(np.float32)
            found[rows, state.host[placed]] = self.predict(own)
        return found

    def new_scores(self, state: State, vms: Ints) -> Floats:
        n = len(state.hosts)
        out = np.empty((len(vms), n))
        right = state.host_x.astype(np.float32)
        left = state.x[vms].astype(np.float32)
        each = max(1, TOGETHER // n)
        for start in range(0, len(vms), each):
            some = left[start : start + each]
            x = np.empty((len(some), n, WIDTH_V + WIDTH_P), np.float32)
            x[:, :, :WIDTH_V] = some[:, None, :]
            x[:, :, WIDTH_V:] = right
            out[start : start + each] = np.reshape(self.predict(x.reshape(-1, WIDTH_V + WIDTH_P)), (len(some), n))
        return out


def train_linear(recipe: Recipe, progress: Callable[[float], None]) -> Model:
    """Ridge regression in closed form."""
    rows, held = snapshots(recipe.parameters["snapshots"], recipe.parameters["held"])
    x, y = pairs(rows)
    mean, scale = x.mean(0, dtype=np.float64), x.std(0, dtype=np.float64)
    scale = np.where(scale > 1e-9, scale, 1.0)
    z = (x - mean) / scale
    middle = float(y.mean(dtype=np.float64))
    weight = np.linalg.solve(z.T @ z + RIDGE * np.eye(z.shape[1]), z.T @ (y - middle)) / scale
    arrays = {"weight": weight.astype(np.float32), "bias": np.array([middle - mean @ weight], np.float32)}
    model = Model(ArraysConfig(arrays={name: array.shape for name, array in arrays.items()}), arrays, features=schema(rows))
    return _checked(model, linear(model), held)


def linear(model: Model) -> Callable[[Singles], Any]:
    """What a linear model predicts, at most 1."""
    weight, bias = model.arrays["weight"], model.arrays["bias"][0]
    return lambda x: np.clip(product(x, weight) + bias, 0.0, 1.0)


def train_boosted(recipe: Recipe, progress: Callable[[float], None]) -> Model:
    """Gradient boosting by scikit-learn, as arrays."""
    from sklearn.ensemble import HistGradientBoostingRegressor  # type: ignore[import-untyped]
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    from armillary.learn import from_sklearn

    rows, held = snapshots(recipe.parameters["snapshots"], recipe.parameters["held"])
    x, y = pairs(rows)
    with threadpool_limits(1):
        made = HistGradientBoostingRegressor(max_iter=TREES, max_leaf_nodes=LEAVES, early_stopping=False, random_state=0).fit(x, y)
    config, arrays = from_sklearn(made)
    model = Model(config, arrays, features=schema(rows), steps=TREES)
    return _checked(model, boosted(model), held)


def boosted(model: Model) -> Callable[[Singles], Any]:
    """What the trees predict."""
    frozen = model.frozen()
    return lambda x: np.clip(frozen(x)[:, 0], 0.0, 1.0)


def train_tower(recipe: Recipe, progress: Callable[[float], None]) -> Model:
    """A perceptron on both sides at once."""
    import torch
    from torch.nn import functional as fn

    from armillary.learn import Mlp, fit

    rows, held = snapshots(recipe.parameters["snapshots"], recipe.parameters["held"])
    features = schema(rows)
    x, y = pairs(rows)
    far, truth = pairs(held)

    def loss(logit: Any, target: Any) -> Any:
        return fn.huber_loss(torch.sigmoid(logit[:, 0]) / UNIT, target / UNIT)

    standard = _standard(features)
    fitted = fit(
        Mlp(WIDTH_V + WIDTH_P, HIDDEN, 1, seed=recipe.seed), (standard(x), y), loss, steps=STEPS, batch=BATCH, lr=1e-3, weight_decay=1e-4,
        seed=recipe.seed, validation=(standard(far), truth), progress=progress,
    )  # fmt: skip
    model = fitted.model(features=features, seed=recipe.seed)
    return _checked(model, tower(model), held)


def tower(model: Model) -> Callable[[Singles], Any]:
    """What the perceptron predicts."""
    frozen, standard = model.frozen(), _standard(model.features)

    def predict(x: Singles) -> Any:
        return 1.0 / (1.0 + np.exp(np.minimum(-frozen(standard(x))[:, 0], 80.0)))

    return predict


def _standard(features: Any) -> Callable[[Singles], Singles]:
    mean, scale = np.array(features.mean, np.float32), np.array(features.scale, np.float32)
    return lambda x: ((x - mean) / scale).astype(np.float32)


def _checked(model: Model, predict: Callable[[Singles], Any], held: Sequence[Snapshot]) -> Model:
    x, y = pairs(held)
    return Model(**{**model.__dict__, "metrics": {"qos_mae": float(np.abs(predict(x) - y).mean())}})
