"""The losses of this package, each a function of a prediction and a target that gives one number, the mean over the batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as fn

Loss = Callable[[Tensor, Tensor], Tensor]


def squared(prediction: Tensor, target: Tensor) -> Tensor:
    """(prediction − target)²."""
    return fn.mse_loss(prediction, target)


def huber(prediction: Tensor, target: Tensor, delta: float = 1.0) -> Tensor:
    """Squared within `delta`, linear outside."""
    return fn.huber_loss(prediction, target, delta=delta)


def quantiles(raw: Tensor) -> Tensor:
    """Quantiles that never cross, from raw outputs [..., q]: the first as it is, each further one plus a softplus."""
    return torch.cat([raw[..., :1], raw[..., :1] + fn.softplus(raw[..., 1:]).cumsum(-1)], -1)


def pinball(levels: Sequence[float]) -> Loss:
    """The pinball loss of several quantiles at once, for raw outputs [batch, …, levels] and targets [batch, …]."""
    tau = torch.tensor(list(levels), dtype=torch.float32)

    def loss(raw: Tensor, target: Tensor) -> Tensor:
        error, level = target[..., None] - quantiles(raw), tau.to(raw.device)
        return torch.maximum(level * error, (level - 1) * error).mean()

    return loss


def focal(gamma: float = 2.0) -> Loss:
    """Binary cross entropy of logits, weighted by (1 − p of the truth)^γ, so that easy cases count little; γ = 0 is the plain one."""

    def loss(logits: Tensor, target: Tensor) -> Tensor:
        plain = fn.binary_cross_entropy_with_logits(logits, target, reduction="none")
        return ((1 - torch.exp(-plain)) ** gamma * plain).mean() if gamma else plain.mean()

    return loss


def list_mle(scores: Tensor, relevance: Tensor) -> Tensor:
    """The negative log likelihood, under Plackett and Luce, of the order by falling relevance; both [batch, items]."""
    ordered = scores.gather(-1, relevance.argsort(stable=True, dim=-1, descending=True))
    below = ordered.flip(-1).logcumsumexp(-1).flip(-1)
    return (below - ordered).mean()


def bpr(better: Tensor, worse: Tensor) -> Tensor:
    """Bayesian personalised ranking: −log σ(better − worse)."""
    return fn.softplus(worse - better).mean()


def pairwise_ranking(scores: Tensor, target: Tensor) -> Tensor:
    """BPR over all pairs of items of a row whose targets differ; both [batch, items]."""
    better = target[..., :, None] > target[..., None, :]
    lost = fn.softplus(scores[..., None, :] - scores[..., :, None])
    return (lost * better).sum() / better.sum().clamp(min=1)


def gaussian_nll(prediction: Tensor, target: Tensor) -> Tensor:
    """The negative log likelihood of a normal distribution whose mean and log variance are prediction[..., 0] and [..., 1]."""
    mean, log_variance = prediction[..., 0], prediction[..., 1].clamp(-20, 20)
    return 0.5 * (log_variance + (target - mean) ** 2 * torch.exp(-log_variance) + math.log(2 * math.pi)).mean()
