"""A detector for counters of one's own: scikit-learn's fit and predict, and an alarm over a stream of windows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin  # type: ignore[import-untyped]

from armillary.errors import InputError

from ..classifiers.kinds import KINDS, learn
from ..counters.logarithm import signed_log
from ..counters.sampler import as_table
from .alarms import held, level
from .features import LEAST_SPREAD, PAST, TOP, Wanted, best_columns, rates
from .folds import Table

Array = np.ndarray[Any, Any]
NOVELTY = ("iforest", "ocsvm", "autoencoder")


class CorruptionDetector(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns from windows of counters which of them are corrupted.

    kind: one of the classifiers (forest, tree, svm, knn, mlp, cnn, iforest, ocsvm, autoencoder). of_m, of_n: an alarm needs m of the last n
    windows. clean_alarms: the share of clean windows that may be above the threshold, on runs that did not teach. names: the counters, in
    the order of the columns of X; by default those of the windows, or c0, c1 …. With "instructions" among them, rates per instruction are
    features too.
    """

    def __init__(
        self, kind: str = "forest", of_m: int = 2, of_n: int = 3, clean_alarms: float = 0.01, names: Sequence[str] | None = None,
        seed: int = 0,
    ) -> None:  # fmt: skip
        self.kind = kind
        self.of_m = of_m
        self.of_n = of_n
        self.clean_alarms = clean_alarms
        self.names = names
        self.seed = seed

    def fit(self, X: Any, y: Any, groups: Any = None) -> CorruptionDetector:
        """X: [windows, counters], not negative; y: 0 clean, 1 corrupted; groups: the run of each window, in the order of time."""
        if self.kind not in KINDS:
            raise InputError(f'found "{self.kind}"; expected {", ".join(KINDS)}', where="kind")
        if not 1 <= self.of_m <= self.of_n or not 0 < self.clean_alarms < 1:
            raise InputError(f"found {self.of_m} of {self.of_n} windows and {self.clean_alarms}; expected m of n, and a share")
        x, y = self._counters(X), np.asarray(y)
        run = np.arange(len(x)) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
        if len(y) != len(x) or len(run) != len(x):
            raise InputError(f"found {len(x)} windows, {len(y)} labels and {len(run)} groups; expected the same number")
        if not np.isin(y, (0, 1)).all():
            raise InputError(f"found the label {y[~np.isin(y, (0, 1))][0]}; expected 0 or 1", where="y")
        y = y.astype(np.int64)
        for label, what in ((0, "clean"), (1, "corrupted")):
            found = len(np.unique(run[y == label]))
            if found < 2 and not (label == 1 and self.kind in NOVELTY):
                raise InputError(f"found {found} runs with {what} windows; expected at least 2", where="groups")
        if int(np.bincount(run).max()) < self.of_m and groups is not None:
            raise InputError(f"found runs of at most {int(np.bincount(run).max())} windows; an alarm takes {self.of_m}", where="groups")
        self.classes_ = np.array([0, 1])
        self.n_features_in_ = x.shape[1]
        return self._learn(x, y, run)

    def _learn(self, x: Array, y: Array, run: Array) -> CorruptionDetector:
        rng = np.random.Generator(np.random.PCG64DXSM(self.seed))
        teaching = np.ones(len(x), bool)
        # A third of the runs of each kind chooses the threshold, and one of each teaches at least.
        bad_runs = np.unique(run[y == 1])
        for runs in (np.setdiff1d(np.unique(run), bad_runs), bad_runs):
            chosen = rng.permutation(runs)[: len(runs) // 3]
            teaching[np.isin(run, chosen)] = False
        if (y[~teaching] == 0).sum() == 0:
            teaching[:] = True
        rate, self.features_ = rates(x, self._names(x.shape[1]), Wanted())
        clean = rate[teaching & (y == 0)]
        self.median_ = np.median(clean, 0)
        self.spread_ = np.maximum(1.4826 * np.median(np.abs(clean - self.median_), 0), LEAST_SPREAD)
        features = self._features(x, run)
        self.columns_ = best_columns(features[teaching], y[teaching]) if y[teaching].any() else np.arange(min(TOP, features.shape[1]))
        self.scorer_ = learn(self.kind, self._table(features, np.flatnonzero(teaching), run, y), self.seed)
        left = np.flatnonzero(~teaching) if (~teaching).any() else np.arange(len(x))
        score = self.scorer_(self._table(features, left, run, y))
        filtered = held(score, np.concatenate([[True], run[left][1:] != run[left][:-1]]), self.of_m, self.of_n)[y[left] == 0]
        found = level(filtered, self.clean_alarms)
        self.threshold_ = found if np.isfinite(found) else float(filtered.max())
        return self

    def _counters(self, X: Any) -> Array:
        x = np.asarray(X, np.float64)
        if x.ndim != 2 or not x.shape[1] or not len(x):
            raise InputError(f"found an array of shape {x.shape}; expected [windows, counters]", where="X")
        if not (np.isfinite(x).all() and x.min() >= 0):
            raise InputError("found a counter that is negative, infinite or no number; expected counts", where="X")
        known = getattr(self, "n_features_in_", x.shape[1])
        if x.shape[1] != known and hasattr(self, "scorer_"):
            raise InputError(f"found {x.shape[1]} counters; expected the {known} that were taught", where="X")
        return x

    def _names(self, count: int) -> tuple[str, ...]:
        names = tuple(self.names) if self.names is not None else tuple(f"c{i}" for i in range(count))
        if len(names) != count:
            raise InputError(f"found {len(names)} names for {count} counters; expected as many", where="names")
        return names

    def _features(self, x: Array, run: Array) -> Array:
        score = (rates(x, self._names(x.shape[1]), Wanted())[0] - self.median_) / self.spread_
        before = np.concatenate([score[:1], score[:-1]])
        begin = np.concatenate([[True], run[1:] != run[:-1]])
        before[begin] = score[begin]
        both = np.concatenate([signed_log(score), signed_log(score - before)], 1)
        return both.astype(np.float32).astype(np.float64)

    def _table(self, features: Array, rows: Array, run: Array, y: Array) -> Table:
        begin = np.concatenate([[True], run[1:] != run[:-1]])
        first = np.maximum.accumulate(np.where(begin, np.arange(len(run)), 0))
        past = np.maximum(rows[:, None] + np.arange(1 - PAST, 1), first[rows][:, None])
        return Table(np.ascontiguousarray(features[:, self.columns_]), rows, past, y[rows])

    def decision_function(self, X: Any, groups: Any = None) -> Array:
        """A score per window, more for more corrupted; windows are in the order of time, of one run unless groups say otherwise."""
        x = self._counters(X)
        run = np.zeros(len(x), np.int64) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
        return self.scorer_(self._table(self._features(x, run), np.arange(len(x)), run, np.zeros(len(x), np.int64)))

    def predict(self, X: Any, groups: Any = None) -> Array:
        """1 where a window's score is above the threshold."""
        return (self.decision_function(X, groups) > self.threshold_).astype(np.int64)

    def predict_proba(self, X: Any, groups: Any = None) -> Array:
        """[windows, 2]: the score of classifiers that vote or estimate; for the others the place of the score around the threshold."""
        score = self.decision_function(X, groups)
        if self.kind not in ("tree", "forest", "mlp", "cnn"):
            score = 1 / (1 + np.exp(np.clip(self.threshold_ - score, -50, 50)))
        return np.stack([1 - score, score], 1)

    def alarm(self, stream: Iterable[Mapping[str, float]] | Array) -> bool:
        """Whether m of n windows in a row are above the threshold; windows by name are taken in the order of `names`."""
        if isinstance(stream, np.ndarray):
            x = stream
        else:
            x = as_table([dict(one) for one in stream], tuple(self.names or ()))[0]
        if len(x) < self.of_m:
            raise InputError(f"found {len(x)} windows; an alarm takes {self.of_m}", where="stream")
        score = self.decision_function(x)
        first = np.arange(len(score)) == 0
        return bool((held(score, first, self.of_m, self.of_n) > self.threshold_).any())
