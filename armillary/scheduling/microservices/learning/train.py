"""Trains the predictor on explored windows and the decider by PPO, from training loads alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from armillary.learn import ActorCritic, Model, Platt, Ppo, Recipe, fit, focal
from armillary.learn.determinism import deterministic
from armillary.scheduling.microservices.application.application import Application
from armillary.scheduling.microservices.readers.documents import application_of

from .exploration import Explored, explored
from .imitation import imitated
from .network import Network
from .observation import INPUTS

#: The last share of the episodes, on which the predictor is calibrated and chosen.
VALIDATION = 0.15
BATCH, LR, DECAY = 256, 2e-3, 1e-3
#: Copies of the environment, and how PPO learns.
COPIES = 8
LEARNING = Ppo(rollout=128, epochs=4, minibatch=256, lr=3e-4, gamma=0.97, lam=0.95, entropy=0.0)
HIDDEN = (48, 48)


def fitted(
    app: Application, how: Any, seed: int, progress: Callable[[float], None] | None = None, data: Explored | None = None
) -> tuple[Network, list[Platt], dict[str, float]]:  # fmt: skip
    """(network, calibrations, metrics). how: windows, steps and relations."""
    data = explored(app, how["windows"], seed) if data is None else data
    last = data.episode >= np.quantile(data.episode, 1 - VALIDATION)
    if last.all():  # one episode: cut in time
        last = np.arange(len(last)) >= (1 - VALIDATION) * len(last)
    train, held = ((data.history[rows], data.proposed[rows]) for rows in (~last, last))
    network = Network(app, seed, how["relations"])
    fit(
        network, (train, data.labels[~last]), focal(2.0), steps=how["steps"], batch=BATCH, lr=LR, weight_decay=DECAY, seed=seed,
        validation=(held, data.labels[last]), progress=progress,
    )  # fmt: skip
    with deterministic(), torch.no_grad():
        logits = network(*(torch.from_numpy(one) for one in held)).numpy()
    labels = data.labels[last]
    platts = [Platt.fit(logits[:, k], labels[:, k]) for k in range(2)]
    metrics: dict[str, float] = {"violated": data.share}
    for k, name in enumerate(("next", "five")):
        p, y = platts[k](logits[:, k]), labels[:, k]
        base = float(y.mean() * (1 - y.mean()))
        metrics |= {f"auc_{name}": auc(p, y), f"brier_{name}": float(np.mean((p - y) ** 2)), f"base_{name}": base}
    return network, platts, metrics


def auc(scores: Any, labels: Any) -> float:
    """The probability that a violated window has a higher score than one that is not."""
    from scipy.stats import rankdata

    good = np.asarray(labels) > 0.5
    n, m = int(good.sum()), int((~good).sum())
    if not n or not m:
        return 0.5
    return float((rankdata(scores)[good].sum() - n * (n + 1) / 2) / (n * m))


def train_predictor(recipe: Recipe, progress: Callable[[float], None]) -> Model:
    """The predictor of a recipe, whose parameters hold the application as JSON."""
    app = application_of(recipe.parameters["application"], "recipe")
    parts, platts, metrics = _predictor(app, recipe.parameters, recipe.seed, progress)
    return Model.joined(parts, {"platt": platts}, steps=recipe.parameters["steps"], metrics=metrics)


def train(recipe: Recipe, progress: Callable[[float], None]) -> Model:
    """The predictor and the decider of a recipe."""
    from armillary.scheduling.microservices.environment import Microservices

    p = recipe.parameters
    app = application_of(p["application"], "recipe")
    parts, platts, metrics = _predictor(app, p, recipe.seed, lambda share: progress(0.5 * share))
    predictor = Model.joined(parts, {"platt": platts}).frozen()
    env = Microservices(COPIES, app, predictor, foresight=p["foresight"], relations=p["relations"])
    policy = ActorCritic(INPUTS, env.factors, HIDDEN, entities=True, seed=recipe.seed)
    if p["lesson"]:
        metrics["repeated"] = imitated(policy, env, p["lesson"], recipe.seed)
    if p["decisions"]:
        found = LEARNING.train(env, p["decisions"], seed=recipe.seed, network=policy, progress=lambda share: progress(0.5 + 0.5 * share))
        last = [value for value in found.history["mean_return"].to_list() if value is not None]
        metrics["mean_return"] = float(last[-1]) if last else 0.0
    return Model.joined(parts | {"decider": Model.of(policy)}, {"platt": platts}, steps=p["steps"], metrics=metrics)


def _predictor(
    app: Application, how: Any, seed: int, progress: Callable[[float], None]
) -> tuple[dict[str, Model], Any, dict[str, float]]:  # fmt: skip
    network, platts, metrics = fitted(app, how, seed, progress)
    parts = {"lstm": Model.of(network.lstm), "attention": Model.of(network.attention)}
    return parts, np.array([(one.a, one.b) for one in platts]), metrics
