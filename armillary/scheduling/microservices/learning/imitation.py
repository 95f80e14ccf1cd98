"""The decider's first lesson: what the greedy rule would do, in states that it and random actions lead to.

Forty thousand windows are few for eight choices per second that share one reward. PPO therefore begins with a policy that has seen the
greedy rule over the predictor, and improves it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from armillary.learn import ActorCritic, fit
from armillary.scheduling.microservices.control.learned import greedy
from armillary.streams import seed32, stream

from .features import LEVELS

if TYPE_CHECKING:
    from armillary.scheduling.microservices.environment import Microservices

#: The share of steps in which a copy's action is random, and steps of the lesson.
STRAY, STEPS, BATCH, LR = 0.15, 300, 256, 2e-3
P_MAX = 0.1


class _Policy(nn.Module):
    def __init__(self, network: ActorCritic) -> None:
        super().__init__()
        self.network = network

    def forward(self, observation: Tensor) -> Tensor:
        logits: Tensor = self.network(observation)[0]
        return logits


def imitated(network: ActorCritic, env: Microservices, windows: int, seed: int = 0) -> float:
    """Teaches the network what the greedy rule does in about so many windows; returns the share of actions that it then repeats."""
    rng = stream(seed, "imitate")
    seen = env.reset(np.array([seed32(seed, "imitate", str(i)) for i in range(env.n)], np.uint32))
    observations, actions = [], []
    for _ in range(-(-windows // env.n)):
        right = np.stack([greedy(env.predictor, one, P_MAX) for one in env.seen])
        observations.append(seen)
        actions.append(right)
        stray = (rng.random(env.n) < STRAY)[:, None]
        seen = env.step(np.where(stray, rng.integers(0, len(LEVELS), right.shape), right))[0]
    x, y = np.concatenate(observations), np.concatenate(actions)
    with torch.no_grad():
        network.observation_mean.copy_(torch.from_numpy(x.mean((0, 1))))
        network.observation_scale.copy_(torch.from_numpy(1 / np.sqrt(x.var((0, 1)) + 1e-8)))
    fit(_Policy(network), (x, y), _cross_entropy, steps=STEPS, batch=BATCH, lr=LR, seed=seed)
    with torch.no_grad():
        return float((network(torch.from_numpy(x))[0].argmax(-1).numpy() == y).mean())


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return fn.cross_entropy(logits.flatten(0, 1), target.flatten())
