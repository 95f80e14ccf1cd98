"""Two heads: one says whether a job starts at once, the other the logarithm of the wait of those that do not.

Whatever the learner, a fitted pair is a `Model` of `armillary.learn`, a file without pickles, and is asked without the library that
trained it; only k nearest neighbours search with scikit-learn's ball tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.learn.features import Feature, Features
from armillary.learn.store import Model
from armillary.scheduling.waittime.features.logarithm import expm1, ln1p

Floats = npt.NDArray[np.float64]
#: The learners, the trees of each ensemble, and the neighbours of k-NN.
LEARNERS = ("boosting", "forest", "knn", "mlp")
TREES, DEPTH, LEAVES, LEAST_LEAF, NEIGHBOURS = 300, 8, 31, 5, 15
#: Boosting rounds without progress on the validation slice after which it stops.
PATIENCE = 20
#: Perceptrons: hidden layers, optimiser steps, rows per step.
HIDDEN, STEPS, BATCH = (128, 128), 3000, 512
#: Is told the share of the work that is done.
Progress = Callable[[float], None]


@dataclass(frozen=True)
class Rows:
    """Rows to learn from: features [rows, columns] by name, and waits in seconds."""

    columns: dict[str, Floats]
    wait_s: Floats

    def __len__(self) -> int:
        return len(self.wait_s)


def fit_heads(
    learner: str, features: tuple[Feature, ...], train: Rows, held: Rows, *, zero_wait_s: float = 10.0, zero_head: bool = True,
    seed: int = 0, progress: Progress | None = None,
) -> Model:  # fmt: skip
    """Fits both heads to `train`; `held`, the slice that follows, decides when boosting and perceptrons stop.

    A head that has nothing to separate (all jobs start at once, or none does) is a constant.
    """
    if learner not in LEARNERS:
        raise InputError(f'found "{learner}"; expected one of {", ".join(LEARNERS)}', where="model")
    told = progress or _nothing
    schema = Features.fit(train.columns, features)
    x, v = schema.matrix(train.columns), schema.matrix(held.columns)
    now, now_held = train.wait_s < zero_wait_s, held.wait_s < zero_wait_s
    parts: dict[str, Model] = {}
    single: dict[str, npt.NDArray[Any]] = {}
    share = float(now.mean()) if len(train) else 1.0
    if not zero_head:
        now, now_held, share = np.zeros(len(now), bool), np.zeros(len(now_held), bool), 0.0
    if 0.0 < share < 1.0:
        _add("zero", *_fitted(learner, True, (x, now.astype(float)), (v, now_held.astype(float)), seed, told), parts, single)
    else:
        single["zero"] = np.array([share])
    told(0.5)
    late, target = ~now, ln1p(train.wait_s)
    if int(late.sum()) > 2 * LEAST_LEAF and float(np.ptp(target[late])) > 0:
        held_late = ~now_held
        pair = (v[held_late], ln1p(held.wait_s[held_late]))
        _add("wait", *_fitted(learner, False, (x[late], target[late]), pair, seed + 1, told), parts, single)
    else:
        single["wait"] = np.array([float(np.median(target[late])) if late.any() else 0.0])
    told(1.0)
    return Model.joined(parts, single, features=schema)


def _add(head: str, part: Model | None, arrays: dict[str, Any], parts: dict[str, Model], single: dict[str, Any]) -> None:
    if part is not None:
        parts[head] = part
    single.update({f"{head}_{name}": array for name, array in arrays.items()})


def _fitted(
    learner: str, classify: bool, train: tuple[Any, Any], held: tuple[Any, Any], seed: int, progress: Progress
) -> tuple[Model | None, dict[str, Any]]:  # fmt: skip
    """One head as a model, or as arrays for k-NN."""
    if learner == "knn":
        return None, {"points": train[0], "values": train[1]}
    if learner == "mlp":
        return _perceptron(classify, train, held, seed, progress), {}
    return (_boosting if learner == "boosting" else _forest)(classify, train, held, seed), {}


def _boosting(classify: bool, train: tuple[Any, Any], held: tuple[Any, Any], seed: int) -> Model:
    """Histogram gradient boosting, on one thread, because sums of gradients over threads would depend on their number."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor  # type: ignore[import-untyped]
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    from armillary.learn.trees import from_sklearn

    watched = len(held[1]) > 0 and (not classify or set(np.unique(held[1])) <= set(np.unique(train[1])))
    how = {
        "max_iter": TREES, "max_depth": DEPTH, "max_leaf_nodes": LEAVES, "random_state": seed, "early_stopping": watched,
        "n_iter_no_change": PATIENCE,
    }  # fmt: skip
    made = HistGradientBoostingClassifier(**how) if classify else HistGradientBoostingRegressor(loss="absolute_error", **how)
    with threadpool_limits(1):
        made.fit(*train, **({"X_val": held[0], "y_val": held[1]} if watched else {}))
    return Model(*from_sklearn(made))


def _forest(classify: bool, train: tuple[Any, Any], held: tuple[Any, Any], seed: int) -> Model:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    from armillary.learn.trees import from_sklearn

    how = {"n_estimators": TREES, "min_samples_leaf": LEAST_LEAF, "random_state": seed, "n_jobs": 1}
    made = RandomForestClassifier(**how) if classify else RandomForestRegressor(max_features=1 / 3, **how)
    return Model(*from_sklearn(made.fit(*train)))


def _perceptron(classify: bool, train: tuple[Any, Any], held: tuple[Any, Any], seed: int, progress: Progress) -> Model:
    from armillary.learn.fit import fit
    from armillary.learn.losses import focal, huber
    from armillary.learn.perceptron import Mlp

    net = Mlp(train[0].shape[1], HIDDEN, 1, seed=seed)
    pairs = [(x, np.asarray(y, np.float32)[:, None]) for x, y in (train, held)]
    done = fit(
        net, pairs[0], focal(0.0) if classify else huber, steps=STEPS, batch=BATCH, weight_decay=1e-4, seed=seed,
        validation=pairs[1] if len(held[1]) else 0.15, progress=lambda share: progress(0.5 * share + (0.0 if classify else 0.5)),
    )  # fmt: skip
    return done.model()


class Heads:
    """A fitted pair, to be asked."""

    def __init__(self, model: Model) -> None:
        if model.features is None:
            raise InputError("found a model without features; expected one of learned-wait")
        self.features: Features = model.features
        frozen = model.frozen()
        self._zero, self._wait = (_Head(frozen, head) for head in ("zero", "wait"))

    def __call__(self, columns: dict[str, Floats]) -> tuple[Floats, Floats]:
        """(probability that the wait is none, seconds of wait if it is not) for each row."""
        x = self.features.matrix(columns)
        chance = self._zero(x)
        return _sigmoid(chance) if self._zero.logits else chance, expm1(np.maximum(self._wait(x), 0.0))

    def answer(self, columns: dict[str, Floats]) -> Floats:
        """The wait in seconds: 0 where none is the more probable."""
        chance, wait = self(columns)
        return np.where(chance > 0.5, 0.0, wait)


class _Head:
    """One head over plain arrays: trees, a perceptron, neighbours, or a constant."""

    def __init__(self, frozen: Any, name: str) -> None:
        self._points, self._values = (_part(frozen, f"{name}_{what}") for what in ("points", "values"))
        self._net: Any = None if self._points is not None else _part(frozen, name)
        if self._points is None and self._net is None:
            raise InputError(f'found a model without the head "{name}"; expected one of learned-wait')
        if self._points is not None and (self._points.ndim != 2 or self._values is None or self._values.shape != self._points.shape[:1]):
            raise InputError(f"{name}_points: found neighbours without a value each; expected one of learned-wait")
        self._constant = isinstance(self._net, np.ndarray)
        #: Whether the answers of a classifier are logits.
        self.logits = name == "zero" and type(self._net).__name__.endswith("Mlp")
        self._tree: Any = None

    def __call__(self, x: npt.NDArray[Any]) -> Floats:
        if self._points is not None:
            return self._near(x)
        if self._constant:
            return np.full(len(x), float(np.asarray(self._net).ravel()[0]))
        return np.asarray(self._net(x), np.float64).reshape(len(x), -1)[:, 0]

    def _near(self, x: npt.NDArray[Any]) -> Floats:
        from sklearn.neighbors import BallTree  # type: ignore[import-untyped]

        if x.shape[1] != self._points.shape[1]:
            raise InputError(f"found {x.shape[1]} features; expected the {self._points.shape[1]} of the model")
        if self._tree is None:
            self._tree = BallTree(self._points)
        found = self._tree.query(x, k=min(NEIGHBOURS, len(self._points)), return_distance=False)
        return np.asarray(np.asarray(self._values, np.float64)[found].mean(axis=1))


def _part(frozen: Any, name: str) -> Any:
    try:
        return frozen[name]
    except KeyError:
        return None


def _sigmoid(logits: Floats) -> Floats:
    return np.asarray(0.5 * (np.tanh(0.5 * logits) + 1.0))


def _nothing(share: float) -> None:
    """Shows no progress."""
