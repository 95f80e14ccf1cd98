"""Trains Hestia's network, the boosted trees and the core-level score on the same samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.cluster import preset
from armillary.learn import Model, Recipe
from armillary.scheduling.colocation.prediction.predictors import Attention, Trees
from armillary.scheduling.colocation.prediction.tokens import INPUTS
from armillary.scheduling.contention import Fleet, Topology
from armillary.streams import stream

from .samples import Samples, samples

Array = npt.NDArray[Any]
#: Sizes of the network, and of the trees.
WIDTH, HEADS, LAYERS, FFN, HEAD = 64, 4, 2, 128, (32,)
TREES, LEAVES, RATE = 250, 31, 0.08
BATCH, LR, DELTA = 128, 3e-3, 0.1
VALIDATION = 4_000
#: Token sets are grouped by size into batches whose padding is short; so many batches are drawn at a time.
GROUP = 8


def topologies() -> tuple[Topology, ...]:
    """The servers of the training samples: those of the preset, and others with more, fewer or no sibling threads."""
    own = Fleet.of(preset("smt-2x16x2")).topologies
    others = (Topology.regular(1, 24, 2, speed=1.1, llc_bytes=36 << 20), Topology.regular(2, 20, 1, speed=0.9, llc_bytes=28 << 20))
    return (*own, *own, *own, *own, *others)


def train(recipe: Recipe, progress: Callable[[float], None]) -> Model:
    """Trains the model that the recipe names, on drawn servers."""
    how = recipe.parameters
    rng = stream(recipe.seed, "colocation", "train")
    drawn = samples(rng, topologies(), how["samples"], with_hardware=how.get("hardware", True))
    held = samples(stream(recipe.seed, "colocation", "validate"), topologies(), VALIDATION, with_hardware=how.get("hardware", True))
    return fitted(str(how["predictor"]), drawn, held, how, recipe.seed, progress)


def fitted(
    predictor: str, drawn: Samples, held: Samples, how: Any, seed: int, progress: Callable[[float], None] | None = None
) -> Model:
    """A model of one kind from samples, with its error on samples that were held out."""
    made = {"attention": _attention, "trees": _trees, "core": _core}[predictor](drawn, held, how, seed, progress)
    return Model(**{**made.__dict__, "metrics": {"usage_mape": mape(made, held)}, "seed": seed})


def mape(model: Model, held: Samples) -> float:
    """The mean of |predicted − true|/true of the CPU on held-out samples, the reading of CPU alone taken as it is true."""
    found = predicted(model, held)
    return float(np.mean(np.abs(np.exp(found - held.target) - 1)))


def predicted(model: Model, held: Samples) -> Array:
    """The predicted log-inflation of samples."""
    if "network.embed.weight" in model.arrays:
        return attention_of(model).of_tokens(held.x, held.types, held.counts)
    if "trees.root" in model.arrays:
        return trees_of(model).of_columns(held.columns)
    return np.maximum(held.core @ model.arrays["weights"].astype(np.float64), 0.0)


def attention_of(model: Model, with_hardware: bool = True) -> Attention:
    """The compiled network of a model."""
    from armillary.learn.attention_rows import attention_rows

    frozen = model.frozen()
    network = frozen["network"]
    return Attention(attention_rows(network.config, network.arrays, frozen["mean"], frozen["scale"]), with_hardware)


def trees_of(model: Model) -> Trees:
    """The trees of a model, as loops walk them."""
    a = model.frozen()["trees"].arrays
    order = ("root", "group", "feature", "split", "right", "missing_left")
    return Trees(float(a["start"][0]), tuple(np.ascontiguousarray(a[name]) for name in order))


def standard(drawn: Samples) -> tuple[Array, Array]:
    """Mean and scale of each input over the tokens that have it."""
    real = np.arange(drawn.x.shape[1]) < drawn.counts[:, None]
    mean, scale = np.zeros(INPUTS, np.float32), np.ones(INPUTS, np.float32)
    for f in range(INPUTS):
        has = real & (drawn.types == 3 if f >= INPUTS - 3 else drawn.types != 3)
        if f == INPUTS - 5:
            has = has & (drawn.types != 0)
        values = drawn.x[:, :, f][has].astype(np.float64)
        if len(values) and values.std() > 1e-6:
            mean[f], scale[f] = values.mean(), values.std()
    return mean, scale


def _attention(drawn: Samples, held: Samples, how: Any, seed: int, progress: Callable[[float], None] | None) -> Model:
    from armillary.learn import TypedAttention, fit, huber

    mean, scale = standard(drawn)
    network = TypedAttention(
        INPUTS, WIDTH, HEADS, LAYERS, ffn=FFN, types=4, head=HEAD, outputs=1, seed=seed,
    )  # fmt: skip
    import torch
    from torch.nn.functional import softplus

    def ready(part: Samples, rows: Array) -> tuple[tuple[Array, ...], Array]:
        longest = int(part.counts[rows].max())
        x = ((part.x[rows, :longest] - mean) / scale).astype(np.float32)
        mask = np.arange(longest) < part.counts[rows][:, None]
        return (x, part.types[rows, :longest], mask), part.target[rows].astype(np.float32)

    def draw(i: int, rng: np.random.Generator) -> tuple[tuple[Array, ...], Array]:
        # A batch holds sets of nearly one size: a random stretch of a larger draw that is ordered by size.
        rows = rng.integers(0, len(drawn), BATCH * GROUP)
        rows = rows[np.argsort(drawn.counts[rows], kind="stable")]
        begin = BATCH * int(rng.integers(0, GROUP))
        return ready(drawn, rows[begin : begin + BATCH])

    def loss(raw: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return huber(softplus(raw[:, 0]), target, DELTA)

    some = np.arange(min(len(held), 1000))
    found = fit(network, draw, loss, steps=how["steps"], batch=BATCH, lr=LR, seed=seed, validation=ready(held, some), progress=progress)
    return Model.joined({"network": found.model()}, {"mean": mean, "scale": scale}, steps=how["steps"], seed=seed)


def _trees(drawn: Samples, held: Samples, how: Any, seed: int, progress: Callable[[float], None] | None) -> Model:
    from sklearn.ensemble import HistGradientBoostingRegressor  # type: ignore[import-untyped]

    from armillary.learn import TreesConfig, from_sklearn

    made = HistGradientBoostingRegressor(
        max_iter=how["trees"], max_leaf_nodes=LEAVES, learning_rate=RATE, early_stopping=False, random_state=0
    ).fit(drawn.columns.astype(np.float32), drawn.target)
    config, arrays = from_sklearn(made)
    assert isinstance(config, TreesConfig)
    part = Model(config, arrays)
    return Model.joined({"trees": part}, {}, steps=how["trees"], seed=seed)


def _core(drawn: Samples, held: Samples, how: Any, seed: int, progress: Callable[[float], None] | None) -> Model:
    weights = np.linalg.lstsq(drawn.core, drawn.target, rcond=None)[0]
    return Model.joined({}, {"weights": weights.astype(np.float32)}, steps=1, seed=seed)
