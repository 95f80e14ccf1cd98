"""The loss on held-out text, and what a model without context would reach."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from armillary.llm import TrainableTiny
from armillary.llm.tiny.trainable import NO_TARGET, cross_entropy

#: Rows that pass through the model at once.
ROWS = 64


def mean_loss(model: TrainableTiny, inputs: Tensor, targets: Tensor) -> float:
    """The mean loss in nats per token of targets [rows, context] that are not left out."""
    total, count = 0.0, 0
    with torch.no_grad():
        for at in range(0, len(inputs), ROWS):
            some = int((targets[at : at + ROWS] != NO_TARGET).sum())
            if some:
                total += some * float(cross_entropy(model(inputs[at : at + ROWS]), targets[at : at + ROWS]))
                count += some
    return total / max(1, count)


def unigram_entropy(tokens: npt.ArrayLike) -> float:
    """Nats per token that the frequencies of these tokens alone give; targets that are left out do not count."""
    found = np.asarray(tokens).ravel()
    _, counts = np.unique(found[found != NO_TARGET], return_counts=True)
    share = counts / counts.sum()
    return float(-(share * np.log(share)).sum())


def longest_rise(curve: list[tuple[int, float]], steps: int) -> float:
    """The longest run of evaluations over which the loss rises without a break, as a share of the stage's steps."""
    longest, begun = 0, None
    for (before, loss), (now, later) in itertools.pairwise(curve):
        if later > loss:
            begun = before if begun is None else begun
            longest = max(longest, now - begun)
        else:
            begun = None
    return longest / steps
