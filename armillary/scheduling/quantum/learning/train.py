"""Trains the policy of `ppo`: 60,000 decisions in 16 environments of training batches, with expected times.

The settings of PPO were chosen by the mean return on batches of another pool of circuits. Advantages are plain returns less values
(γ = λ = 1), because most of what a decision costs is paid in the last step of its episode, when the longest job runs out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from armillary.learn import Model, Ppo, Recipe, episode_returns
from armillary.scheduling.quantum.environment import QuantumBatch, training_batches

from .network import Scorer
from .observation import JOBS

Array = npt.NDArray[Any]

COPIES = 16
#: Batches, of another pool, on which models are told apart.
CHECKED = 32


def train(recipe: Recipe, progress: Callable[[float], None]) -> Model:
    """Trains the policy of a recipe."""
    p = recipe.parameters
    draw = training_batches(p["jobs"], p["pool"], p["networks"])
    how = Ppo(rollout=128, epochs=8, minibatch=256, lr=1e-3, gamma=1.0, lam=1.0, entropy=0.003, most_kl=0.05)
    env, network = QuantumBatch(COPIES, draw, p["choose_nodes"]), Scorer(p["choose_nodes"], seed=recipe.seed)
    trained = how.train(env, p["decisions"], seed=recipe.seed, network=network, progress=progress)
    other = training_batches(p["jobs"], p["pool"], p["networks"], seed=1)
    judged = episode_returns(QuantumBatch(CHECKED, other, p["choose_nodes"]), partial(act, network))
    return trained.model(metrics={"mean_return": float(judged.mean())})


def act(network: Scorer, observation: Array, mask: Array | None) -> Array:
    """The likeliest actions that are allowed."""
    with torch.no_grad():
        logits = network(torch.from_numpy(observation))[0].numpy()
    logits = logits if mask is None else np.where(mask, logits, -np.inf)
    job = logits[:, : JOBS + 1].argmax(1)
    return job if logits.shape[1] == JOBS + 1 else np.stack([job, logits[:, JOBS + 1 :].argmax(1)], 1)
