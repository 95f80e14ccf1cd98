"""Learners from scikit-learn and LightGBM over one row per drive-day, fitted on one thread with seeds of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from armillary.streams import seed32

from ..fleets.fleet import Array
from ..judging.lesson import Lesson, Rows, Scorer


def weights(labels: Array) -> Array:
    """Weights by which positive rows count as much as a tenth of the others together, if they are fewer."""
    positive = max(1, int(labels.sum()))
    return np.where(labels, max(1.0, 0.1 * (len(labels) - positive) / positive), 1.0)


def boosted(lesson: Lesson, *, every: int, trees: int, leaves: int, rate: float, package: str) -> Scorer:
    """Boosted trees: LightGBM's, or those of scikit-learn where it is absent."""
    _, x, y = lesson.table(every)
    seed = seed32(lesson.seed, "boosting")
    model: Any
    with threadpool_limits(1):
        if package == "lightgbm":
            import lightgbm

            model = lightgbm.LGBMClassifier(
                n_estimators=trees, num_leaves=leaves, learning_rate=rate, min_child_samples=20, subsample=0.8, subsample_freq=1,
                colsample_bytree=0.5, reg_lambda=1.0, deterministic=True, force_row_wise=True, n_jobs=1, random_state=seed % (1 << 31),
                verbose=-1,
            )  # fmt: skip
            model.fit(x, y, sample_weight=weights(y))
            booster = model.booster_
            return Rows(lambda rows: booster.predict(rows, raw_score=True, num_threads=1), {"package": "lightgbm"})
        from sklearn.ensemble import HistGradientBoostingClassifier  # type: ignore[import-untyped]

        model = HistGradientBoostingClassifier(
            max_iter=trees, max_leaf_nodes=leaves, learning_rate=rate, min_samples_leaf=20, max_features=0.5, l2_regularization=1.0,
            early_stopping=False, random_state=seed,
        )  # fmt: skip
        model.fit(x, y, sample_weight=weights(y))
    return Rows(_walker(model), {"package": "scikit-learn"})


def forest(lesson: Lesson, *, every: int, trees: int, columns: Array | None = None, rows: Array | None = None) -> Scorer:
    """A random forest, on some of the columns and rows of the table if they are named."""
    _, x, y = lesson.table(every)
    # Weights come from all rows, so that the scores of forests on parts of them compare.
    share = weights(y)
    x, y, share = (x, y, share) if rows is None else (x[rows], y[rows], share[rows])
    x = x if columns is None else x[:, columns]
    predict = _walker(grown(x, y, trees, seed32(lesson.seed, "forest"), None if rows is None else share))
    return Rows(predict if columns is None else lambda table: predict(table[:, columns]))


def grown(x: Array, y: Array, trees: int, seed: int, share: Array | None = None) -> Any:
    """A fitted forest of scikit-learn, with classes balanced in every tree unless rows have weights."""
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(
        trees, min_samples_leaf=5, max_features="sqrt", random_state=seed, n_jobs=1,
        class_weight="balanced_subsample" if share is None else None,
    )  # fmt: skip
    with threadpool_limits(1):
        return model.fit(x, y, share)


def _walker(model: Any) -> Any:
    """The trees of a fitted model as a compiled loop."""
    from armillary.learn.frozen import freeze
    from armillary.learn.trees import from_sklearn

    config, arrays = from_sklearn(model)
    frozen = freeze(config, arrays)
    return lambda x: np.asarray(frozen(x), np.float64)[:, 0]


def logistic(lesson: Lesson, *, every: int, strength: float) -> Scorer:
    """A logistic regression on standardised columns; models of drives are columns of their own."""
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

    from armillary.learn.products import product

    _, x, y = lesson.table(every)
    kinds = len(lesson.fleet.models)
    mean, scale = x[:, :-1].mean(0), x[:, :-1].std(0)
    scale = np.where(scale > 1e-6, scale, 1.0)

    def columns(table: Array) -> Array:
        one = (table[:, -1:] == np.arange(kinds)).astype(np.float32)
        return np.concatenate([np.clip((table[:, :-1] - mean) / scale, -8, 8), one], 1).astype(np.float64)

    model = LogisticRegression(C=strength, max_iter=300, class_weight="balanced")
    with threadpool_limits(1):
        model.fit(columns(x), y)
    slope, start = np.ascontiguousarray(model.coef_[0]), float(model.intercept_[0])
    return Rows(lambda table: product(columns(table), slope) + start)
