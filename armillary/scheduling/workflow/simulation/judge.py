"""The judged makespans of a case: configurations played with computation times that the planner did not see."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from armillary.scheduling.workflow.planning.configurations import Configurations
from armillary.scheduling.workflow.stages.workflow import Floats, Ints, Workflow
from armillary.scheduling.workflow.storage.tiers import Machine

from .play import Played, Player

#: The coefficient of variation of a task's computation time.
CV = 0.1


def noise(tasks: int, rng: np.random.Generator, cv: float = CV) -> Floats:
    """Lognormal factors of mean 1, to nine digits, which are the same on every CPU."""
    spread = math.sqrt(math.log1p(cv * cv))
    drawn: Floats = rng.standard_normal(tasks)
    factors: Floats = np.exp(spread * drawn - spread * spread / 2)
    return np.round(factors, 9)


def judge(
    workflow: Workflow, machine: Machine, configurations: Configurations, stream: Callable[[str], np.random.Generator], cv: float = CV
) -> tuple[Floats, Played]:  # fmt: skip
    """Makespans in seconds, and the fastest run. Every configuration is another run, with computation times of its own."""
    players: dict[int, Player] = {}
    found = np.empty(len(configurations))
    fastest: Played | None = None
    for n, (tier, nodes) in enumerate(zip(configurations.tier, configurations.nodes.tolist())):
        player = players.setdefault(nodes, Player(workflow, machine, nodes)) if nodes not in players else players[nodes]
        name = f"{nodes}:{','.join(map(str, tier.tolist()))}"
        played = player.play(tier, noise(workflow.tasks, stream(name), cv))
        found[n] = played.makespan
        if fastest is None or played.makespan < fastest.makespan:
            fastest = played
    assert fastest is not None
    return found, fastest


def chosen(count: int, most: int, rng: np.random.Generator) -> Ints:
    """The numbers of the configurations to judge: all, or `most` seeded ones."""
    return np.arange(count) if count <= most else np.sort(rng.choice(count, most, replace=False)).astype(np.int64)
