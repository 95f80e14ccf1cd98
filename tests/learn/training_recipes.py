"""Training functions that recipes of the tests name, and which say how often they ran."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from armillary.learn.kinds import ArraysConfig
from armillary.learn.recipes import Progress, Recipe
from armillary.learn.store import Model


def _logged(recipe: Recipe) -> dict[str, Any]:
    p: dict[str, Any] = dict(recipe.parameters)
    if "log" in p:
        with Path(p["log"]).open("a") as log:
            log.write("trained\n")
    return p


def count(recipe: Recipe, progress: Progress) -> Model:
    """A model that needs no PyTorch, for tests that start processes; `started` is a file that another process waits for."""
    p = _logged(recipe)
    if p.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    deadline = time.monotonic() + 20
    while "wait_for" in p and not Path(p["wait_for"]).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return Model(ArraysConfig(arrays={"table": (2,)}), {"table": np.array([1.0, recipe.seed], np.float32)}, steps=10)


def train(recipe: Recipe, progress: Progress) -> Model:
    from armillary.learn import Mlp, fit, squared

    p = _logged(recipe)
    x = np.random.default_rng(0).standard_normal((200, 3)).astype(np.float32)
    net = Mlp(3, (8,), 1, seed=recipe.seed)
    found = fit(net, (x, x[:, :1]), squared, steps=p.get("steps", 10), batch=32, seed=recipe.seed, progress=progress)
    return Model.of(net, steps=found.steps, metrics={"loss": found.validation_loss})


def digest(seed: int) -> str:
    """The digest of the trained weights, for comparing processes."""
    return train(Recipe("f/a/t", "training_recipes:train", seed=seed), lambda share: None).digest
