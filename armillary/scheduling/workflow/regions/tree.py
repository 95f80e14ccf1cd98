"""A regression tree over discrete choices, pruned until its leaves are separated.

The tree is scikit-learn's, fitted on absolute error over one column per stage and tier, and the number of nodes. Its cost-complexity path
gives the strengths of pruning α to choose from. Repeated cross-validation gives each α an error and a separation of the leaves on rows that
the tree did not see; among the α whose error is near the best, the best separated one wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.scheduling.workflow.planning.configurations import Configurations, Layout
from armillary.scheduling.workflow.stages.workflow import Floats, Ints

from .separation import separation

SELECTIONS = ("constrained", "pass_only", "weighted", "unpruned")
#: Strengths of pruning that are tried, evenly among those of the path.
MOST_ALPHAS = 60


@dataclass(frozen=True)
class Settings:
    """How the tree is grown and chosen."""

    min_leaf: int = 8
    max_depth: int = 12
    folds: int = 5
    repeats: int = 5
    delta: float = 0.10
    tolerance: float = 1.02
    selection: str = "constrained"
    seed: int = 0


def features(configurations: Configurations, layout: Layout) -> npt.NDArray[np.float32]:
    """One column per stage and tier (1 if the stage is on it), and the number of nodes last."""
    tier = configurations.tier
    columns = [(tier[:, s] == t) for s in range(tier.shape[1]) for t in range(len(layout.tiers))]
    return np.stack([*columns, configurations.nodes], 1).astype(np.float32)


class Tree:
    """A fitted tree that can be pruned at any α without fitting it again."""

    def __init__(self, x: Any, y: Floats, settings: Settings) -> None:
        from sklearn.tree import DecisionTreeRegressor  # type: ignore[import-untyped]

        made = DecisionTreeRegressor(
            criterion="absolute_error", min_samples_leaf=settings.min_leaf, max_depth=settings.max_depth, random_state=settings.seed
        )
        self.made = made.fit(x, y)
        inner = self.made.tree_
        self.left, self.right = inner.children_left, inner.children_right
        self.value = inner.value[:, 0, 0]
        #: The error of each node as scikit-learn weighs it in pruning: impurity times its share of the rows.
        self.error = inner.impurity * inner.weighted_n_node_samples / inner.weighted_n_node_samples[0]
        self.path = _paths(self.left, self.right)
        self.cut_at, self.strengths = _weakest_links(self.left, self.right, self.error)

    def leaf_of(self, x: Any, alpha: float) -> Ints:
        """The node at which each row ends after pruning with α."""
        target = self.kept(alpha)
        return target[self.made.apply(x)]

    def leaves(self, alpha: float) -> int:
        """The number of leaves after pruning with α."""
        return len(np.unique(self.kept(alpha)[self.left < 0]))

    def kept(self, alpha: float) -> Ints:
        """For every node, the highest node on its path that is cut at this α, or the node itself."""
        cut = self.cut_at[self.path] <= alpha
        first: Ints = np.where(cut.any(1), self.path[np.arange(len(cut)), cut.argmax(1)], np.arange(len(cut)))
        return first


def _paths(left: Ints, right: Ints) -> Ints:
    """The nodes from the root to each node, filled up with the node itself."""
    rows: list[list[int]] = [[0]] + [[] for _ in range(len(left) - 1)]
    for node in range(len(left)):  # Children come after their parents.
        if left[node] >= 0:
            for child in (int(left[node]), int(right[node])):
                rows[child] = [*rows[node], child]
    longest = max(map(len, rows))
    return np.array([row + row[-1:] * (longest - len(row)) for row in rows], np.int64)


def _weakest_links(left: Ints, right: Ints, error: Floats) -> tuple[Floats, Floats]:
    """The least α at which each inner node becomes a leaf (infinite for leaves), and the α of the path in increasing order."""
    count = len(left)
    parent = np.full(count, -1)
    for node in range(count):
        if left[node] >= 0:
            parent[left[node]] = parent[right[node]] = node
    leaves, below = np.ones(count, np.int64), error.copy()
    for node in range(count - 1, -1, -1):
        if left[node] >= 0:
            leaves[node] = leaves[left[node]] + leaves[right[node]]
            below[node] = below[left[node]] + below[right[node]]
    inner = left >= 0
    gone = np.zeros(count, bool)
    cut_at = np.full(count, np.inf)
    strengths = [0.0]
    alpha = 0.0
    while inner.any():
        link = np.full(count, np.inf)
        link[inner] = (error[inner] - below[inner]) / (leaves[inner] - 1)
        node = int(link.argmin())
        alpha = max(alpha, float(link[node]))
        cut_at[node] = alpha
        strengths.append(alpha)
        stack = [node]
        while stack:
            one = stack.pop()
            inner[one] = False
            gone[one] = True
            if left[one] >= 0:
                stack += [c for c in (int(left[one]), int(right[one])) if not gone[c]]
        lost, gained = leaves[node] - 1, error[node] - below[node]
        at = node
        while at >= 0:
            leaves[at] -= lost
            below[at] += gained
            at = int(parent[at])
    return cut_at, np.unique(strengths)


@dataclass(frozen=True)
class Chosen:
    """The strength of pruning and what cross-validation said about all that were tried."""

    alpha: float
    alphas: Floats
    error: Floats
    score: Floats


def choose(x: Any, y: Floats, tree: Tree, settings: Settings) -> Chosen:
    """The strength of pruning that repeated cross-validation prefers."""
    strengths = tree.strengths
    if settings.selection == "unpruned" or len(y) < 2 * settings.folds or len(strengths) < 2:
        return Chosen(0.0, strengths[:1], np.zeros(1), np.zeros(1))
    if len(strengths) > MOST_ALPHAS:
        strengths = strengths[np.unique(np.linspace(0, len(strengths) - 1, MOST_ALPHAS).astype(int))]
    # Between two steps of the path every α prunes alike; the middle is the furthest from both.
    alphas = np.append(np.sqrt(np.maximum(strengths[:-1], 1e-300) * strengths[1:]), strengths[-1])
    alphas[0] = 0.0
    errors, scores = _validated(x, y, alphas, settings)
    error, score = np.median(errors, 0), np.median(scores, 0)
    return Chosen(_preferred(alphas, error, score, tree, settings), alphas, error, score)


def _validated(x: Any, y: Floats, alphas: Floats, settings: Settings) -> tuple[Floats, Floats]:
    """Error and separation on every validation fold, as arrays by [fold, α]."""
    from sklearn.model_selection import KFold  # type: ignore[import-untyped]

    errors, scores = [], []
    for repeat in range(settings.repeats):
        folds = KFold(settings.folds, shuffle=True, random_state=settings.seed + 137 * repeat)
        for train, valid in folds.split(x):
            grown = Tree(x[train], y[train], settings)
            ends, seen = grown.made.apply(x[valid]), y[valid]
            row_errors, row_scores = [], []
            before: tuple[Ints, float, float] | None = None
            for alpha in alphas:
                leaf = grown.kept(float(alpha))[ends]
                if before is None or not np.array_equal(before[0], leaf):
                    found = float(np.abs(grown.value[leaf] - seen).mean())
                    before = (leaf, found, separation(leaf, seen, settings.min_leaf, settings.delta))
                row_errors.append(before[1])
                row_scores.append(before[2])
            errors.append(row_errors)
            scores.append(row_scores)
    return np.array(errors), np.array(scores)


def _preferred(alphas: Floats, error: Floats, score: Floats, tree: Tree, settings: Settings) -> float:
    near = error <= settings.tolerance * error.min() + 1e-12
    if settings.selection == "pass_only":
        near = np.ones(len(alphas), bool)
    elif settings.selection == "weighted":
        score = 0.7 * _unit(score) + 0.3 * (1 - _unit(error))
        near = np.ones(len(alphas), bool)
    best = max(np.flatnonzero(near).tolist(), key=lambda n: (score[n], tree.leaves(float(alphas[n])), -alphas[n]))
    return float(alphas[best])


def _unit(values: Floats) -> Floats:
    spread = float(values.max() - values.min())
    return (values - values.min()) / spread if spread > 0 else np.zeros(len(values))
