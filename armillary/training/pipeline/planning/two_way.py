"""Plans for pipelines that run in both directions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..orders.two_ways import two_way
from ..simulation.simulator import simulate
from .layers import Division, LayeredWork, StagePlan, fastest
from .partition import balanced_cuts
from .promise import promised


def two_way_plan(work: LayeredWork, reuse: int, order: str, snake: bool = False) -> StagePlan:
    """The fastest rule of the list scheduler and option of recomputation that fit, for `reuse` stages per rank and direction."""
    return fastest(work, list(two_way_candidates(work, reuse, order, snake)), order)[0]


def two_way_candidates(work: LayeredWork, reuse: int, order: str, snake: bool = False) -> Iterator[StagePlan]:
    """The fastest schedule that fits with the cheapest option of recomputation; the one of least memory for options that do not fit."""
    for option in np.argsort(work.layers.extra.sum(0), kind="stable"):
        division = Division.uniform(work.layers, balanced_cuts(work.layers, work.ranks * reuse, work.layers.extra[:, option]), int(option))
        forward, backward_input, backward_weight, again = division.seconds
        costs = division.costs(copies=2, overhead=work.overhead, sync_rate=work.sync_rate)
        transfer = work.links.latency_s + float(np.mean(division.costs().sent)) / work.links.rate
        made = [
            (schedule, simulate(schedule, costs, work.links))
            for schedule in two_way(
                work.ranks, work.micros, forward, backward_input + backward_weight + again, reuse=reuse, snake=snake, transfer_s=transfer,
            )
        ]  # fmt: skip
        fitting = [pair for pair in made if work.fits(pair[1])]
        best = min(fitting, key=lambda pair: pair[1].makespan) if fitting else min(made, key=lambda pair: float(pair[1].peak.max()))
        predicted = promised(division, "chimera", work.ranks, work.micros, reuse) + work.exposed(division)
        yield StagePlan(division, best[0], predicted, order, reuse, 2)
        if fitting:
            return
