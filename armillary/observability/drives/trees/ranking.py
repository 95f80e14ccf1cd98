"""Which features matter: five rankings, the odd ones dropped, their mean, and how many of the first are enough.

The complexity of telling failing rows from others is measured by Fisher's ratio, the overlap of both ranges, and the share of rows inside
that overlap. Features are taken in the order of the mean ranking up to where the complexity of those taken, weighed against their number,
is least.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.streams import seed32

from ..fleets.fleet import Array

#: Rankings farther from the others than this many standard deviations above the mean are dropped.
ODD = 1.0
#: What a feature more must gain in mean complexity, as the weight of the complexity against the share of features.
WEIGHT = 0.75
#: Features that are taken at least.
FEWEST = 10


def rankings(x: Array, y: Array, seed: int) -> dict[str, Array]:
    """The rank of each feature, 0 the best, by five measures."""
    from scipy.stats import rankdata

    from .classical import grown

    centred, label = x - x.mean(0), y - y.mean()
    scale = np.maximum(np.sqrt((centred**2).mean(0)) * label.std(), 1e-12)
    pearson = np.abs((centred * label[:, None]).mean(0) / scale)
    ranks = rankdata(x, axis=0).astype(np.float64)
    ranks -= ranks.mean(0)
    spearman = np.abs((ranks * label[:, None]).mean(0) / np.maximum(ranks.std(0) * label.std(), 1e-12))
    trees = grown(x, y, 30, seed32(seed, "ranking"))
    measures = {
        "pearson": pearson, "spearman": spearman, "j-index": j_index(x, y), "forest": trees.feature_importances_,
        "boosting": _boosting(x, y, seed),
    }  # fmt: skip
    return {name: rankdata(-np.round(value, 12), method="average") - 1 for name, value in measures.items()}


def j_index(x: Array, y: Array) -> Array:
    """The greatest difference between the shares of failing and of other rows beyond a threshold, of each feature."""
    found = np.zeros(x.shape[1])
    positive, total = max(1, int(y.sum())), len(y)
    for j in range(x.shape[1]):
        order = np.argsort(x[:, j], kind="stable")
        value, hits = x[order, j], np.cumsum(y[order])
        last = np.append(value[1:] != value[:-1], True)
        below = np.arange(1, total + 1)
        difference = hits / positive - (below - hits) / max(1, total - positive)
        found[j] = np.abs(difference[last]).max()
    return found


def _boosting(x: Array, y: Array, seed: int) -> Array:
    """How much each feature gains in a few shallow boosted trees, by permutation-free counting of their splits' gains."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # type: ignore[import-untyped]

    model: Any = HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=8, early_stopping=False, random_state=seed32(seed, "boosting"))
    model.fit(x, y)
    gain = np.zeros(x.shape[1])
    for (tree,) in model._predictors:
        inner = ~tree.nodes["is_leaf"].astype(bool)
        np.add.at(gain, tree.nodes["feature_idx"][inner].astype(np.int64), np.maximum(tree.nodes["gain"][inner], 0))
    return gain


def merged(found: dict[str, Array]) -> tuple[Array, tuple[str, ...]]:
    """(order of features, the rankings that were kept): rankings whose mean distance to the others is odd are dropped.

    The distance of two rankings is the share of pairs of features that they order differently.
    """
    names = list(found)
    distance = np.array([np.mean([_disagreement(found[a], found[b]) for b in names if b != a]) for a in names])
    kept = [name for name, d in zip(names, distance) if d <= distance.mean() + ODD * distance.std() + 1e-12]
    mean = np.mean([found[name] for name in kept], axis=0)
    return np.argsort(mean, kind="stable"), tuple(kept)


def _disagreement(a: Array, b: Array) -> float:
    from scipy.stats import kendalltau

    return 0.5 * (1 - float(kendalltau(a, b).statistic))


def enough(x: Array, y: Array, order: Array) -> int:
    """How many of the first features to take: where the complexity of those taken, weighed against their share, is least."""
    fisher, overlap, inside = (part[order] for part in complexities(x, y))
    taken = np.arange(1, len(order) + 1)
    # Of a set, Fisher's ratio and the efficiency are those of its best feature, and the overlap is a volume: the product of all.
    together = (np.minimum.accumulate(fisher) + np.cumprod(overlap) + np.minimum.accumulate(inside)) / 3
    value = WEIGHT * together + (1 - WEIGHT) * taken / len(order)
    return min(len(order), max(FEWEST, int(np.argmin(value)) + 1))


def complexities(x: Array, y: Array) -> tuple[Array, Array, Array]:
    """How hard each feature alone tells the classes apart, from 0 to 1: Fisher's ratio, the overlap of ranges, and the rows inside it."""
    a, b = x[y], x[~y]
    between, spread = (a.mean(0) - b.mean(0)) ** 2, a.var(0) + b.var(0)
    fisher = 1 / (1 + between / np.maximum(spread, 1e-12))
    low, high = np.maximum(a.min(0), b.min(0)), np.minimum(a.max(0), b.max(0))
    whole = np.maximum(np.maximum(a.max(0), b.max(0)) - np.minimum(a.min(0), b.min(0)), 1e-12)
    overlap = np.clip((high - low) / whole, 0, 1)
    return fisher, overlap, ((x >= low) & (x <= high)).mean(0)


def change_point(wear: Array, y: Array, drive: Array, fewest: int = 15, gain: float = 10.0) -> float | None:
    """The wear at which the rate of failing drives changes most, if the likelihood rises by `gain` and both sides have failures enough.

    Rows of one drive are alike, so each drive counts once: with its last row, failing if any of its rows is.
    """
    order = np.lexsort((wear, drive))
    last = np.append(np.diff(drive[order]) != 0, True)
    fails = np.zeros(int(drive.max()) + 1, bool)
    np.logical_or.at(fails, drive, y)
    wear, y = wear[order][last], fails[drive[order][last]]
    order = np.argsort(wear, kind="stable")
    value, hits = wear[order], np.cumsum(y[order].astype(np.float64))
    n, total = len(value), hits[-1]
    left = np.arange(1, n)
    fits = (value[1:] != value[:-1]) & (hits[:-1] >= fewest) & (total - hits[:-1] >= fewest)
    if not fits.any():
        return None
    likelihood = _log_likelihood(hits[:-1], left) + _log_likelihood(total - hits[:-1], n - left) - _log_likelihood(total, n)
    likelihood[~fits] = -np.inf
    best = int(np.argmax(likelihood))
    return float(0.5 * (value[best] + value[best + 1])) if likelihood[best] >= gain else None


def _log_likelihood(hits: Any, n: Any) -> Any:
    p = np.clip(hits / n, 1e-12, 1 - 1e-12)
    return hits * np.log(p) + (n - hits) * np.log(1 - p)
