"""Regression trees as arrays: taken from scikit-learn, stored like every other model, and walked by a compiled loop without scikit-learn.

Thresholds are rounded down to float32, which sends every float32 feature the same way as the original.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.kernels import kernel

from .kinds import TreesConfig

Array = np.ndarray[Any, Any]


def check_trees(config: TreesConfig, arrays: Mapping[str, Array], where: str) -> None:
    """Raises InputError unless every walk from a root stays inside the arrays and ends."""
    nodes = np.arange(config.nodes)
    inner = arrays["feature"] >= 0
    faults = (
        ("root", (arrays["root"] < 0) | (arrays["root"] >= config.nodes), f"a node from 0 to {config.nodes - 1}"),
        ("group", (arrays["group"] < 0) | (arrays["group"] >= config.outputs), f"an output from 0 to {config.outputs - 1}"),
        ("feature", (arrays["feature"] < -1) | (arrays["feature"] >= config.inputs), f"a feature from -1 to {config.inputs - 1}"),
        ("right", inner & ((arrays["right"] <= nodes) | (arrays["right"] >= config.nodes)), "a node behind its parent"),
        ("feature", inner & (nodes + 1 >= config.nodes), "a leaf at the end"),
        ("missing_left", arrays["missing_left"] > 1, "0 or 1"),
    )
    for name, wrong, expected in faults:
        if wrong.any():
            at = int(np.argmax(wrong))
            raise InputError(f"{name}[{at}]: found {int(arrays[name][at])}; expected {expected}", where=where)


@kernel
def walk(x: Array, root: Array, group: Array, feature: Array, split: Array, right: Array, missing_left: Array, out: Array) -> None:
    """Adds the value of every tree for the row `x` to `out`."""
    for t in range(root.shape[0]):
        node = root[t]
        while feature[node] >= 0:
            value = x[feature[node]]
            if value <= split[node] or (value != value and missing_left[node] == 1):
                node += 1
            else:
                node = right[node]
        out[group[t]] += split[node]


@kernel
def walk_rows(x: Array, root: Array, group: Array, feature: Array, split: Array, right: Array, missing_left: Array, out: Array) -> None:
    """`walk` for every row."""
    for i in range(x.shape[0]):
        walk(x[i], root, group, feature, split, right, missing_left, out[i])


def from_sklearn(estimator: Any) -> tuple[TreesConfig, dict[str, Array]]:
    """The arrays of a fitted HistGradientBoosting, RandomForest, ExtraTrees or DecisionTree of scikit-learn.

    Regressors give their prediction; classifiers of two classes give the probability of the second. Categorical splits are refused.
    """
    kind = type(estimator).__name__
    classifier = kind.endswith("Classifier")
    if classifier and len(estimator.classes_) != 2:
        raise InputError(f"found {len(estimator.classes_)} classes; expected two")
    if kind.startswith("HistGradientBoosting"):
        if not classifier and estimator.loss not in ("squared_error", "absolute_error", "quantile"):
            raise InputError(f"found the loss {estimator.loss}; expected one whose link is the identity")
        parts = [_boosted(one[0].nodes) for one in estimator._predictors]
        base, how = float(estimator._baseline_prediction.ravel()[0]), "sum"
    elif hasattr(estimator, "tree_") or hasattr(estimator, "estimators_"):
        grown = estimator.estimators_ if hasattr(estimator, "estimators_") else [estimator]
        parts, base, how = [_grown(one.tree_, classifier) for one in grown], 0.0, "mean"
    else:
        raise InputError(f"found {kind}; expected trees of scikit-learn")
    counts = [len(part["feature"]) for part in parts]
    roots = np.cumsum([0, *counts[:-1]])
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    arrays["right"] = (arrays["right"] + np.repeat(roots, counts)).astype(np.int32)
    arrays |= {"start": np.array([base], np.float32), "root": roots.astype(np.int32), "group": np.zeros(len(parts), np.int32)}
    facts = {"inputs": estimator.n_features_in_, "trees": len(parts), "nodes": sum(counts), "reduce": how}
    config = TreesConfig.model_validate(facts | {"link": "sigmoid" if classifier and how == "sum" else "identity"})
    return config, {name: np.ascontiguousarray(arrays[name]) for name in config.shapes()}


def _rounded_down(values: Array) -> Array:
    found = values.astype(np.float32)
    return np.where(found > values, np.nextafter(found, np.float32(-np.inf)), found).astype(np.float32)


def _boosted(nodes: Array) -> dict[str, Array]:
    leaf = nodes["is_leaf"].astype(bool)
    if nodes["is_categorical"][~leaf].any():
        raise InputError("found a split of categories; expected numeric features")
    return _preorder(
        leaf, nodes["feature_idx"], nodes["num_threshold"], nodes["value"], nodes["left"], nodes["right"], nodes["missing_go_to_left"]
    )


def _grown(tree: Any, classifier: bool) -> dict[str, Array]:
    value = tree.value[:, 0, 1] / tree.value[:, 0, :].sum(-1) if classifier else tree.value[:, 0, 0]
    left = tree.children_left
    missing = getattr(tree, "missing_go_to_left", np.zeros(len(left)))
    return _preorder(left < 0, tree.feature, tree.threshold, value, left, tree.children_right, missing)


def _preorder(leaf: Array, feature: Array, threshold: Array, value: Array, left: Array, right: Array, missing: Array) -> dict[str, Array]:
    """The nodes in the order in which every left child follows its parent."""
    order: list[int] = []
    waiting = [0]
    while waiting:
        node = waiting.pop()
        order.append(node)
        if not leaf[node]:
            waiting += int(right[node]), int(left[node])
    place = np.empty(len(leaf), np.int64)
    place[order] = np.arange(len(order))
    end = leaf[order]
    return {
        "feature": np.where(end, -1, feature[order]).astype(np.int16),
        "split": np.where(end, value[order].astype(np.float32), _rounded_down(np.where(end, 0.0, threshold[order]))),
        "right": np.where(end, 0, place[np.where(end, 0, right[order]).astype(np.int64)]),
        "missing_left": np.where(end, 0, missing[order] != 0).astype(np.uint8),
    }
