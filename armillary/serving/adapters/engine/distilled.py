"""The learned twin: a small forest that predicts at once how a set of adapters would do on one GPU.

A sweep runs the twin on sets of adapters drawn from the papers' grid of rates, ranks and slots. A regressor learns the share of the
offered tokens that is processed, and a classifier whether adapters starve. Both are forests of at most four trees and at most twelve
levels, copied from scikit-learn into flat arrays, so that a question takes microseconds. The sweep is kept on disk under the hash of
what it depends on; that of Llama-3.1-8B on an H100 with 64 GB comes with the package.

Data Driven Optimization of GPU efficiency for Distributed LLM Adapter Serving, arXiv 2602.24044.
"""

from __future__ import annotations

import functools
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary import extras
from armillary.kernels import kernel

from ..workload import OUTPUT_MEAN, PROMPT_MEAN, RANKS, RATES, AdapterTable, requests_for
from .gpu_engine import SLOTS, GpuEngine
from .starvation import ALLOWED, STARVED
from .twin import processed_share

Floats = npt.NDArray[np.float64]
FEATURES = (
    "count", "slots", "rate_max", "rate_min", "rate_mean", "rate_std", "tokens_per_s", "outputs_per_s", "rank_max", "rank_min", "rank_mean",
    "rank_std", "kv_tokens",
)  # fmt: skip
COUNTS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384)
WINDOW_S = 600.0
SAMPLES = 2400
VERSION = 4


def features(table: AdapterTable, slots: int, engine: GpuEngine) -> Floats:
    """Returns the `FEATURES` of a candidate set on one GPU."""
    rate, rank = table.rate, table.rank
    return np.array(
        [
            len(table), slots, rate.max(), rate.min(), rate.mean(), rate.std(), table.token_rate.sum(), (rate * table.output).sum(),
            rank.max(), rank.min(), rank.mean(), rank.std(), engine.kv_tokens(slots, int(rank.max())),
        ],
        float,
    )  # fmt: skip


def ask_twin(table: AdapterTable, slots: int, engine: GpuEngine, window_s: float = WINDOW_S, seed: int = 0) -> tuple[float, float]:
    """Asks the twin for (tokens processed per second, share of adapters below 90 % of their offered tokens).

    A set that overloads the engine more than fourfold is given up after as many requests as four engines could take.
    """
    if not table.rate.sum() > 0:
        return 0.0, 0.0
    most = 4.0 * engine.peak_tokens_per_s() / float(table.token_rate.sum())
    if most < 1.0:
        return engine.peak_tokens_per_s(), 1.0
    work = requests_for(table, window_s, np.random.default_rng(seed))
    if not len(work):
        return float(table.token_rate.sum()), 0.0
    found = engine.twin(slots, int(table.rank.max())).run(work, table.rank.tolist(), until_s=window_s)
    done, offered = processed_share(work, found.first_token, found.generated, window_s, len(table))
    asked = offered > 0
    if not asked.any():
        return float(table.token_rate.sum()), 0.0
    # The share is of the offered rate, not of what happened to arrive, because chance is no part of a set's throughput.
    return float(table.token_rate.sum() * done.sum() / offered.sum()), float(np.mean(done[asked] < STARVED * offered[asked]))


def draw(rng: np.random.Generator, engine: GpuEngine) -> tuple[AdapterTable, int] | None:
    """Draws a set of adapters and slots like those that a placement may ask about; None if the engine would not start."""
    count = int(rng.choice(COUNTS))
    triple = rng.choice(len(RATES), 3, replace=False)
    share = rng.dirichlet(np.ones(3)) if rng.random() < 0.5 else np.eye(3)[rng.integers(3)] if rng.random() < 0.5 else np.full(3, 1 / 3)
    rates = np.asarray(RATES)[triple][rng.choice(3, count, p=share)] * 2.0 ** rng.uniform(-0.5, 0.5)
    top = int(rng.integers(1, len(RANKS) + 1))
    ranks = np.asarray(RANKS)[rng.integers(0, top, count)]
    stretch = (2.0 ** rng.uniform(-1, 2.6), 2.0 ** rng.uniform(-2, 0.6)) if rng.random() < 0.4 else (1.0, 1.0)
    table = AdapterTable.of(ranks, rates, prompt=PROMPT_MEAN * stretch[0], output=OUTPUT_MEAN * stretch[1])
    choices = engine.slot_choices(count, int(ranks.max()))
    load = float(table.token_rate.sum()) / engine.peak_tokens_per_s()
    if not choices or load > 1.6:
        return None
    return table, int(rng.choice(choices))


@dataclass(frozen=True)
class Sweep:
    """The twin's answers for many sets: features, tokens per second, and share of starved adapters."""

    x: Floats
    tokens_per_s: Floats
    starved: Floats


def sweep(engine: GpuEngine, samples: int = SAMPLES, seed: int = 0) -> Sweep:
    """Returns the twin's answers to learn from, which are kept on disk."""
    key = repr(
        (VERSION, engine, engine.twin_model(), [engine.kv_tokens(8, r) for r in RANKS], samples, seed, RATES, COUNTS, SLOTS, WINDOW_S)
    )
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "armillary" / "adapters"
    name = f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.npz"
    path = root / name
    for kept in (Path(__file__).parents[1] / "data" / name, path):
        found = _kept(kept, samples)
        if found is not None:
            return found
    rng = np.random.default_rng(seed)
    x, tokens, starved = np.empty((samples, len(FEATURES))), np.empty(samples), np.empty(samples)
    n = 0
    while n < samples:
        drawn = draw(rng, engine)
        if drawn is None:
            continue
        x[n] = features(*drawn, engine)
        tokens[n], starved[n] = ask_twin(*drawn, engine, seed=n)
        n += 1
    try:
        root.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.stem}.{os.getpid()}.npz")
        np.savez_compressed(part, x=x, tokens_per_s=tokens, starved=starved)
        part.replace(path)
    except OSError:
        pass
    return Sweep(x, tokens, starved)


def _kept(path: Path, samples: int) -> Sweep | None:
    try:
        with np.load(path, allow_pickle=False) as kept:
            found = Sweep(kept["x"].astype(float), kept["tokens_per_s"].astype(float), kept["starved"].astype(float))
    except (OSError, ValueError, KeyError, EOFError):
        return None
    whole = found.x.shape == (samples, len(FEATURES)) and found.starved.shape == found.tokens_per_s.shape == (samples,)
    return found if whole else None


@dataclass(frozen=True)
class Distilled:
    """The learned twin. `throughput` and `starvation` are scikit-learn estimators on `FEATURES`."""

    engine: GpuEngine
    throughput: Any
    starvation: Any
    _share: tuple[Any, ...]
    _chance: tuple[Any, ...]

    @classmethod
    def learn(cls, engine: GpuEngine, data: Sweep) -> Distilled:
        """Learns forests for the share of offered tokens processed and for starvation; a halving search over five folds sets the depth."""
        forests = extras.need("sklearn.ensemble")
        from sklearn.experimental import enable_halving_search_cv  # type: ignore[import-untyped]  # noqa: F401
        from sklearn.metrics import make_scorer  # type: ignore[import-untyped]
        from sklearn.model_selection import HalvingGridSearchCV  # type: ignore[import-untyped]

        grid = {"max_depth": [6, 8, 12], "min_samples_leaf": [1, 3, 8], "n_estimators": [4]}
        share = np.minimum(1.0, data.tokens_per_s / data.x[:, 6])
        ways = {"cv": 5, "random_state": 0, "factor": 3}
        regressor = HalvingGridSearchCV(
            forests.RandomForestRegressor(random_state=0, max_features=None), grid, scoring=make_scorer(smape, greater_is_better=False),
            **ways,
        ).fit(data.x, share).best_estimator_  # fmt: skip
        classifier = HalvingGridSearchCV(
            forests.RandomForestClassifier(random_state=0, max_features=None), grid, scoring="f1_macro", **ways
        ).fit(data.x, data.starved > ALLOWED).best_estimator_  # fmt: skip
        return cls(engine, regressor, classifier, _flat(regressor, None), _flat(classifier, 1))

    def judge(self, table: AdapterTable, slots: list[int]) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Returns (tokens per second, starves) of a set on one GPU with each of these numbers of slots."""
        x = np.array([features(table, s, self.engine) for s in slots])
        share, chance = np.empty(len(slots)), np.empty(len(slots))
        _answer(x, *self._share, share)
        _answer(x, *self._chance, chance)
        return np.minimum(share, 1.0) * x[:, 6], chance > 0.5


@dataclass(frozen=True)
class Asked:
    """The twin itself as a judge, which remembers its earlier answers."""

    engine: GpuEngine
    window_s: float = WINDOW_S

    def judge(self, table: AdapterTable, slots: list[int]) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Returns (tokens per second, starves) of a set on one GPU with each of these numbers of slots."""
        found = np.array([ask_twin(table, s, self.engine, self.window_s) for s in slots])
        return found[:, 0], found[:, 1] > ALLOWED


@functools.cache
def distilled(engine: GpuEngine) -> Distilled:
    """Returns the learned twin of an engine, learned once in a process."""
    return Distilled.learn(engine, sweep(engine))


def smape(truth: Any, guess: Any) -> float:
    """Returns the symmetric mean absolute percentage error."""
    truth, guess = np.asarray(truth, float), np.asarray(guess, float)
    scale = np.abs(truth) + np.abs(guess)
    return float(np.mean(np.divide(200.0 * np.abs(truth - guess), scale, out=np.zeros_like(scale), where=scale > 0)))


def _flat(forest: Any, column: int | None) -> tuple[Any, ...]:
    """Returns trees as arrays: first node of each, feature, threshold, left, right, and value (of class `column`)."""
    parts: list[list[Any]] = [[], [], [], [], []]
    roots, at = [], 0
    for estimator in forest.estimators_:
        tree = estimator.tree_
        value = tree.value[:, 0, 0] if column is None else tree.value[:, 0, -1] / tree.value[:, 0, :].sum(axis=1)
        if column is not None and tree.value.shape[2] == 1:
            value = np.full(tree.node_count, float(forest.classes_[0]))
        for part, found in zip(
            parts, (tree.feature, tree.threshold, tree.children_left + at, tree.children_right + at, value), strict=True
        ):
            part.append(found)
        roots.append(at)
        at += tree.node_count
    kinds = (np.int64, np.float64, np.int64, np.int64, np.float64)
    return (np.array(roots, np.int64), *(np.concatenate(p).astype(k) for p, k in zip(parts, kinds, strict=True)))


@kernel
def _answer(x, roots, feature, threshold, left, right, value, out):  # type: ignore[no-untyped-def]
    for i in range(x.shape[0]):
        total = 0.0
        for k in range(len(roots)):
            at = roots[k]
            while feature[at] >= 0:
                at = left[at] if np.float32(x[i, feature[at]]) <= threshold[at] else right[at]
            total += value[at]
        out[i] = total / len(roots)
