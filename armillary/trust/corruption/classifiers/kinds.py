"""The classifiers by name: each learns from a table and gives a function from a table to a score per row, more for more corrupted.

Trees, isolation forests, neighbours and support vectors are scikit-learn's; the three networks are trained with sums in a fixed order, and
distances and kernels are computed likewise, so the same seed gives the same alarms on every processor. Trees are walked by a compiled loop.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ..detection.folds import Table
from .networks import Convolutions, Perceptron, balanced, sigmoid, train
from .vectors import Machine, rbf, some

Array = np.ndarray[Any, Any]
Score = Callable[[Table], Array]
#: Parameters that the paper's family has, as the specification lists them.
DEPTH, TREES, NEIGHBOURS, C, NU = 8, 200, 15, 10.0, 0.02
MLP, CNN_WIDTH, AUTOENCODER = (64, 32), 32, (16, 4, 16)
EPOCHS = 12
EULER = 0.5772156649015329


def learn(kind: str, table: Table, seed: int, *, trees: int = TREES, epochs: int = EPOCHS) -> Score:
    """A fitted classifier of this kind. A novelty detector learns from the clean windows of the table alone."""
    rng = np.random.Generator(np.random.PCG64DXSM(seed))
    with threadpool_limits(1):
        return KINDS[kind](table, rng, trees if kind in ("forest", "iforest") else epochs)


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(1 << 31))


def _walked(model: Any) -> Score:
    """The trees of a fitted model as a compiled loop."""
    from armillary.learn.frozen import freeze
    from armillary.learn.trees import from_sklearn

    frozen = freeze(*from_sklearn(model))
    return lambda table: np.asarray(frozen(table.x.astype(np.float32)), np.float64)[:, 0]


def _tree(table: Table, rng: np.random.Generator, _: int) -> Score:
    from sklearn.tree import DecisionTreeClassifier  # type: ignore[import-untyped]

    model = DecisionTreeClassifier(max_depth=DEPTH, min_samples_leaf=5, class_weight="balanced", random_state=_seed(rng))
    return _walked(model.fit(table.x.astype(np.float32), table.labels))


def _forest(table: Table, rng: np.random.Generator, trees: int) -> Score:
    from sklearn.ensemble import RandomForestClassifier  # type: ignore[import-untyped]

    model = RandomForestClassifier(trees, min_samples_leaf=3, class_weight="balanced", random_state=_seed(rng), n_jobs=1)
    return _walked(model.fit(table.x.astype(np.float32), table.labels))


def _svm(table: Table, rng: np.random.Generator, _: int) -> Score:
    from sklearn.svm import SVC  # type: ignore[import-untyped]

    rows = some(len(table.rows), rng)
    x, gamma = table.x[rows], 1 / table.every.shape[1]
    model = SVC(C=C, kernel="precomputed", class_weight="balanced", max_iter=20_000).fit(rbf(x, x, gamma), table.labels[rows])
    machine = Machine(model, x, gamma)
    return lambda other: machine(other.x)


def _knn(table: Table, rng: np.random.Generator, _: int) -> Score:
    from sklearn.neighbors import KNeighborsClassifier  # type: ignore[import-untyped]

    # A tree of boxes adds squares up in order; the brute force would use a BLAS.
    model = KNeighborsClassifier(min(NEIGHBOURS, len(table.rows)), algorithm="kd_tree").fit(table.x, table.labels)
    # A vote among neighbours has few values: their labels, balanced by the classes' shares.
    share = max(1e-9, float(table.labels.mean()))
    vote = np.where(table.labels == 1, 1 / share, -1 / max(1e-9, 1 - share))
    return lambda other: vote[model.kneighbors(other.x, return_distance=False)].sum(1) if len(other.rows) else np.zeros(0)


def _mlp(table: Table, rng: np.random.Generator, epochs: int) -> Score:
    network = Perceptron((table.every.shape[1], *MLP, 1), rng)
    labels = table.labels[:, None].astype(np.float64)
    train(network, table.x, labels, balanced(table.labels)[:, None], epochs, rng, logistic=True)
    return lambda other: sigmoid(network.forward(other.x))[:, 0]


def _cnn(table: Table, rng: np.random.Generator, epochs: int) -> Score:
    network = Convolutions(table.every.shape[1], CNN_WIDTH, rng)
    labels = table.labels[:, None].astype(np.float64)
    train(network, table.sequences, labels, balanced(table.labels)[:, None], epochs, rng, logistic=True)
    return lambda other: sigmoid(network.forward(other.sequences))[:, 0]


def _iforest(table: Table, rng: np.random.Generator, trees: int) -> Score:
    from sklearn.ensemble import IsolationForest

    x = table.clean().x.astype(np.float32)
    model = IsolationForest(n_estimators=trees, random_state=_seed(rng), n_jobs=1).fit(x)
    grown = [SimpleNamespace(tree_=_lengths(one.tree_)) for one in model.estimators_]
    walked = _walked(SimpleNamespace(estimators_=grown, n_features_in_=x.shape[1]))
    # A short path isolates: the mean length with its sign turned orders like scikit-learn's score.
    return lambda other: -walked(other)


def _lengths(tree: Any) -> Any:
    """The tree with the length of the path to a leaf, and what its rows would take further, as its value."""
    depth = np.zeros(tree.node_count)
    for node in range(tree.node_count):
        for child in (tree.children_left[node], tree.children_right[node]):
            if child >= 0:
                depth[child] = depth[node] + 1
    value = depth + np.array([_further(int(n)) for n in tree.n_node_samples])
    return SimpleNamespace(
        value=value[:, None, None], children_left=tree.children_left, children_right=tree.children_right, feature=tree.feature,
        threshold=tree.threshold,
    )  # fmt: skip


def _further(rows: int) -> float:
    """The mean path length of an unsuccessful search among so many rows, by the harmonic number itself."""
    if rows < 2:
        return 0.0
    harmonic = 0.0
    for n in range(1, rows):
        harmonic += 1 / n
    return 2 * harmonic - 2 * (rows - 1) / rows


def _ocsvm(table: Table, rng: np.random.Generator, _: int) -> Score:
    from sklearn.svm import OneClassSVM

    clean = table.clean()
    rows = some(len(clean.rows), rng)
    x, gamma = clean.x[rows], 1 / table.every.shape[1]
    machine = Machine(OneClassSVM(kernel="precomputed", nu=NU).fit(rbf(x, x, gamma)), x, gamma)
    return lambda other: -machine(other.x)


def _autoencoder(table: Table, rng: np.random.Generator, epochs: int) -> Score:
    x = table.clean().x
    network = Perceptron((x.shape[1], *AUTOENCODER, x.shape[1]), rng)
    train(network, x, x, np.ones((len(x), 1)), epochs, rng, logistic=False)

    def error(other: Table) -> Array:
        off = network.forward(other.x) - other.x
        total = np.zeros(len(off))
        for c in range(off.shape[1]):
            total = total + off[:, c] * off[:, c]
        return total

    return error


KINDS: dict[str, Callable[[Table, np.random.Generator, int], Score]] = {
    "tree": _tree, "forest": _forest, "svm": _svm, "knn": _knn, "mlp": _mlp, "cnn": _cnn, "iforest": _iforest, "ocsvm": _ocsvm,
    "autoencoder": _autoencoder,
}  # fmt: skip
FAMILIES = {
    "standard": ("tree", "forest", "svm", "knn"), "neural": ("mlp", "cnn"), "unsupervised": ("iforest", "ocsvm", "autoencoder"),
}  # fmt: skip
