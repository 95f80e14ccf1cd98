"""Trains LACE-RL's network: double DQN on the decisions of three training days.

Offline, with full feedback, all nine outputs are regressed at once. Without it, the learner acts in the environment and sees the reward
of the action that it took, as a textbook DQN does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.learn import Dqn, Mlp, Model, Recipe, Transitions
from armillary.scheduling.energy import GRIDS, Carbon
from armillary.scheduling.faas import Invocations
from armillary.scheduling.keepalive.simulation.decisions import FIXED, INPUTS, NETWORK, OUTPUTS
from armillary.scheduling.keepalive.simulation.play import Policy, play
from armillary.scheduling.keepalive.workload import REFERENCE_S, Counted, KeepAliveWork, Knowledge, built_in, training_day
from armillary.streams import stream

from .replay import Decisions, decisions

Array = npt.NDArray[Any]
HIDDEN = (64, 64)
GAMMA, BATCH, LR, COPY_EVERY, CAPACITY = 0.9, 256, 1e-3, 1000, 50_000
#: The share of the episodes whose λ is at an end of its range, half of them at 0 and half at 1; the others are uniform.
ENDS = 0.1
#: Episodes in which each pod is replayed, each at a λ of its own.
EPISODES = 8
#: Grids are up to this many times as clean or as dirty as on the training day.
DIRT = 4.0
#: Functions and invocations of the validation days, and their λ.
CHECKED = (150, 30_000)
CHECKED_AT = (0.3, 0.5, 0.7)


def train(recipe: Recipe, progress: Callable[[float], None]) -> Model:
    """Trains the network of a recipe on the built-in training days."""
    p = recipe.parameters
    days = [training_day(name, p["functions"], p["invocations"]) for name in GRIDS]
    return trained([(*day, Knowledge.of(*day)) for day in days], p, recipe.seed, progress)


def trained(
    days: list[tuple[Invocations, Carbon, Knowledge]], how: Any, seed: int, progress: Callable[[float], None] | None = None
) -> Model:
    """Trains a network on some days. how: see_reuse, see_ci, full_feedback, updates and decisions."""
    works = [KeepAliveWork(trace, carbon, 0.5, known) for trace, carbon, known in days]
    table = Decisions.joined([decisions(work, see_reuse=how["see_reuse"], see_ci=how["see_ci"]) for work in works])
    rng = stream(seed, "keepalive", "training")
    rows = chosen(table, how["decisions"])
    # A pod is replayed in several episodes, each at a λ of its own, and a decision is taken from one of them.
    episode = table.pod[rows] * EPISODES + rng.integers(0, EPISODES, len(rows))
    lam = drawn_lambdas(rng, (int(table.pod.max()) + 1) * EPISODES)[episode]
    # A network that sees the intensity also meets grids that are cleaner and dirtier than those of the training days.
    dirt = np.exp(rng.uniform(-1, 1, (int(table.pod.max()) + 1) * EPISODES) * np.log(DIRT))[episode] if how["see_ci"] else None
    x = table.inputs(rows, lam, dirt)
    mean, scale = standard(x)
    dqn = Dqn(
        hidden=HIDDEN, gamma=GAMMA, batch=BATCH, lr=LR, copy_every=COPY_EVERY, capacity=CAPACITY, full_feedback=how["full_feedback"],
        train_every=max(1, how["decisions"] // how["updates"]), explore_share=0.5,
    )  # fmt: skip
    if how["full_feedback"]:
        after = np.maximum(table.following[rows], 0)
        following = table.inputs(after, lam, dirt)
        transitions = Transitions(
            (x - mean) / scale, np.zeros(len(rows), np.int64), table.rewards(rows, lam, dirt), (following - mean) / scale,
            table.following[rows] < 0,
        )  # fmt: skip
        found = dqn.train_offline(transitions, how["updates"], seed=seed, progress=progress)
    else:
        from armillary.scheduling.keepalive.environment import KeepAlive

        env = KeepAlive(16, table, standard=(mean, scale), dirt=DIRT if how["see_ci"] else 1.0)
        found = dqn.train(env, how["decisions"], seed=seed, progress=progress)
    network = found.network
    assert isinstance(network, Mlp)
    bake(network, mean, scale)
    knowledge = _mean([known for *_, known in days])
    model = Model.joined(
        {"q": found.model()},
        {"prior": knowledge.prior, "scales": np.array([knowledge.latency_s, knowledge.carbon_g, knowledge.intensity])},
        steps=how["updates"], seed=seed,
    )  # fmt: skip
    metrics = {"cost": checked_cost(model.frozen()["q"], how["see_reuse"], how["see_ci"])}
    return Model(**{**model.__dict__, "metrics": metrics})


def chosen(table: Decisions, most: int) -> npt.NDArray[np.int64]:
    """At most `most` rows, the same number of each function that has as many, because busy functions would fill the table otherwise."""
    counts = np.bincount(table.function)
    each = np.sort(counts)
    level = (most - np.concatenate(([0], np.cumsum(each)[:-1]))) / np.arange(len(each), 0, -1)
    fits = level[level <= each]
    cap = int(fits[0]) if len(fits) else int(each[-1])
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    picked = [start + np.unique(np.linspace(0, n - 1, min(n, max(1, cap))).astype(np.int64)) for start, n in zip(starts, counts) if n]
    return np.concatenate(picked)


def drawn_lambdas(rng: np.random.Generator, episodes: int) -> npt.NDArray[np.float64]:
    """One λ per episode."""
    lam, end = rng.random(episodes), rng.random(episodes)
    return np.where(end < ENDS, (end < ENDS / 2).astype(np.float64), lam)


def standard(x: Array) -> tuple[Array, Array]:
    """Mean and scale of the inputs; an input that never changes keeps its scale."""
    deviation = x.std(0)
    return x.mean(0), np.where(deviation > 1e-6, deviation, 1.0).astype(np.float32)


def bake(network: Mlp, mean: Array, scale: Array) -> None:
    """Moves the standardisation into the first layer, so that the network takes inputs as they are."""
    arrays = network.state_arrays()
    weight, bias = arrays[0].astype(np.float64), arrays[1].astype(np.float64)
    weight = weight / scale
    arrays[0], arrays[1] = weight.astype(np.float32), (bias - weight @ mean).astype(np.float32)
    network.load_arrays(arrays)


def checked_cost(frozen: Any, see_reuse: bool, see_ci: bool) -> float:
    """The mean cost over grids and λ on small days of other functions, in units of static-60's."""
    assert (frozen.config.inputs, frozen.config.outputs) == (INPUTS, OUTPUTS)
    costs = []
    for name in GRIDS:
        functions, most = CHECKED
        rng = stream(0, "keepalive", "validate", name)
        work = built_in(rng, grid_name=name, lam=0.5, functions=functions, most=most, length_s=86400.0)
        reference = Counted.of(work, play(work, Policy(FIXED, keep_s=REFERENCE_S), 0.5))
        policy = Policy(NETWORK, network=frozen.compiled, see_reuse=see_reuse, see_ci=see_ci)
        costs += [Counted.of(work, play(work, policy, lam)).cost(lam, reference) for lam in CHECKED_AT]
    return float(np.mean(costs))


def _mean(known: list[Knowledge]) -> Knowledge:
    return Knowledge(
        float(np.mean([k.latency_s for k in known])), float(np.mean([k.carbon_g for k in known])), np.mean([k.prior for k in known], 0),
        float(np.mean([k.intensity for k in known])),
    )  # fmt: skip
