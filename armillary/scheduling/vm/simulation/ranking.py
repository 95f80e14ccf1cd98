"""How good a ranking of hosts is: the mean absolute error of predicted QoS, NDCG of the first ten, and whether the first is the best."""

from __future__ import annotations

import numpy as np

from armillary.scheduling.vm.problem.fleet import Floats

TOP = 10
#: QoS that differs by less counts as equal.
EQUAL = 1e-9


def relevance(truth: Floats) -> Floats:
    """QoS stretched to [0, 1] between the worst and the best host of each VM, [vms, hosts]; 1 where all hosts are equal."""
    low, high = truth.min(1, keepdims=True), truth.max(1, keepdims=True)
    spread = high - low
    return np.where(spread > EQUAL, (truth - low) / np.where(spread > EQUAL, spread, 1.0), 1.0)


def ndcg(scores: Floats, truth: Floats, top: int = TOP) -> float:
    """Mean normalised discounted cumulative gain of the first `top` hosts by score; 1 for the true order."""
    gain = relevance(truth)
    many = min(top, gain.shape[1])
    discount = 1.0 / np.log2(np.arange(2, many + 2))
    order = np.argsort(-scores, axis=1, kind="stable")[:, :many]
    got = (np.take_along_axis(gain, order, 1) * discount).sum(1)
    best = (-np.sort(-gain, axis=1)[:, :many] * discount).sum(1)
    return float(np.mean(got / best))


def hit(scores: Floats, truth: Floats) -> float:
    """The share of VMs whose first host is a best one."""
    first = np.argmax(scores, axis=1)
    return float(np.mean(truth[np.arange(len(truth)), first] >= truth.max(1) - EQUAL))
