"""Trains the shipped models: on built-in logs whose seeds no case ever sees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from armillary.learn.recipes import Progress, Recipe
from armillary.learn.store import Model
from armillary.scheduling.waittime.features.sweep import Log
from armillary.scheduling.waittime.learned_wait import LearnedWait
from armillary.scheduling.waittime.workload import LOADS, TAUGHT_NODES, built_in
from armillary.streams import stream

from .heads import Heads, Rows
from .rows import fitted, known, rows

#: Training logs of each kind, and the share of each log that trains; the rest decides when training stops.
LOGS, JOBS, SHARE = 6, 8000, 0.8


def training_logs(kind: str) -> list[tuple[str, float, int]]:
    """(name, load, draw) of the logs that a kind is taught on, spread evenly over the loads of the kind."""
    loads = [LOADS[kind][i % len(LOADS[kind])] for i in range(LOGS)]
    return [(f"{kind} train {TAUGHT_NODES} nodes {JOBS} jobs load {load} draw {i}", load, i) for i, load in enumerate(loads)]


def train(recipe: Recipe, progress: Progress) -> Model:
    """Both heads from the training logs of the recipe's kind; "shuffled" permutes the waits among the jobs."""
    how = LearnedWait(**{k: v for k, v in recipe.parameters.items() if k != "kind"})
    kind = str(recipe.parameters["kind"])
    parts: tuple[list[Rows], list[Rows]] = ([], [])
    for name, load, _ in training_logs(kind):
        jobs = built_in(stream(recipe.seed, "scheduling", "waittime", "train", name), kind, JOBS, TAUGHT_NODES, load)
        seen = known(how, Log.of(jobs))
        if kind == "shuffled":
            order = stream(recipe.seed, "scheduling", "waittime", "shuffle", name).permutation(JOBS)
            jobs = replace(jobs, wait_s=jobs.wait_s[order])
        cut = int(SHARE * JOBS)
        for side, chosen in zip(parts, (np.arange(cut), np.arange(cut, JOBS)), strict=True):
            side.append(rows(seen, how.features(), jobs, chosen))
    train_rows, held = (_joined(side) for side in parts)
    model = fitted(how, train_rows, held, seed=recipe.seed, progress=progress)
    error = np.abs(Heads(model).answer(held.columns) - held.wait_s)
    return replace(model, metrics={"validation_mae_s": float(error.mean()), "validation_median_ae_s": float(np.median(error))})


def _joined(parts: list[Rows]) -> Rows:
    names: dict[str, Any] = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    return Rows(names, np.concatenate([part.wait_s for part in parts]))
