"""AdaPipe: recomputation by a knapsack for every possible stage, and a partition that balances the phases of 1F1B.

For each range of layers that a stage might get, a knapsack chooses an option of recomputation per layer so that what the stage has in
flight fits, at the least extra seconds. An outer dynamic programme then chooses the ranges so that warm-up, steady and ending phases
together are shortest (O(p·L²)). Memory is counted in 512 steps. Where a rank has several chunks, each may take an equal share of its
memory, and the outer programme minimises the slowest stage; both are ours.

AdaPipe: Optimizing Pipeline Parallelism with Adaptive Recomputation and Partitioning, ASPLOS 2024.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.arena import Technique
from armillary.kernels import loop
from armillary.parameters import parameter

from .planning.in_flight import ORDERS
from .planning.layers import Division, LayeredWork, StagePlan, fastest
from .planning.search import CHUNKS, Setting, settings
from .planning.staged import least_longest, least_phases
from .simulation.schedule import IntArray

#: Steps in which the knapsack counts a stage's memory.
STEPS = 512
#: A stage has at most this many times the mean number of layers; longer ones would never be chosen.
LONGEST = 4
#: Entries of the table of stages beyond which it is not made.
MOST_ENTRIES = 1 << 24


@dataclass(frozen=True)
class AdaPipe(Technique):
    """A knapsack per stage inside a partition by dynamic programming. AdaPipe, ASPLOS 2024."""

    chunks: tuple[int, ...] = parameter(CHUNKS, "numbers of chunks per rank to try", range=(1, 64))
    orders: tuple[str, ...] = parameter(ORDERS, "kinds of schedule to try", choices=ORDERS)

    takes = frozenset({"layered"})

    def plan(self, work: LayeredWork) -> StagePlan:
        """The fastest schedule that fits."""
        return fastest(work, list(self.candidates(work)), "adapipe")[0]

    def candidates(self, work: LayeredWork) -> Iterator[StagePlan]:
        """One plan per kind of schedule for which a partition fits."""
        layers = work.layers
        for setting in settings(work, self.chunks, self.orders):
            if setting.stages * (layers.body + 1) ** 2 > MOST_ENTRIES:
                continue
            forward, backward = stage_seconds(setting)
            cuts = least_longest(forward + backward) if setting.chunks > 1 else least_phases(forward, backward, work.micros)
            if cuts is None:
                continue
            choice = np.zeros(len(layers.types), np.int64)
            for q in range(setting.stages):
                at = layers.rows(int(cuts[q]), int(cuts[q + 1]))
                choice[at] = knapsack(setting, q, at)
            yield setting.plan(Division(layers, cuts, choice), source="adapipe")


def stage_seconds(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """(forward, backward with the least recomputation that fits) of stage q with the layers i to j, infinite where none fits."""
    layers = setting.work.layers
    room = _room(setting)
    forward, backward = (np.full((setting.stages, layers.body + 1, layers.body + 1), np.inf) for _ in range(2))
    _all_stages(
        layers.forward, layers.backward, layers.extra, layers.kept, layers.state, layers.workspace, setting.counts, room, layers.first,
        layers.body, STEPS, LONGEST * -(-layers.body // setting.stages), forward, backward,
    )  # fmt: skip
    return forward, backward


def _room(setting: Setting) -> float:
    return (setting.work.capacity - setting.work.overhead) / setting.chunks


def knapsack(setting: Setting, stage: int, at: slice) -> IntArray:
    """The option of each layer of a stage that costs least extra seconds and fits."""
    layers, room = setting.work.layers, _room(setting)
    step = room / STEPS
    size = np.ceil(setting.counts[stage] * layers.kept[at] / step - 1e-9)
    choice, best = np.zeros(at.stop - at.start, np.int64), np.inf
    if layers.state[at].sum() + setting.counts[stage] * layers.kept[at, 0].sum() <= room:
        return choice
    for reserve in np.unique(np.append(layers.workspace[at], 0.0)):
        steps = int((room - layers.state[at].sum() - reserve) // step)
        if steps < 0:
            continue
        allowed = np.where(layers.workspace[at] <= reserve, np.minimum(size, STEPS + 1), STEPS + 1).astype(np.int64)
        seconds, chosen = _knapsack(allowed, layers.extra[at], steps)
        if seconds < best:
            best, choice = seconds, chosen
    return choice


@loop
def _knapsack(size: Any, extra: Any, steps: Any) -> Any:
    n, options = extra.shape
    best = np.full((n + 1, steps + 1), np.inf)
    picked = np.zeros((n + 1, steps + 1), np.int64)
    best[0, :] = 0.0
    for i in range(n):
        for space in range(steps + 1):
            for r in range(options):
                if size[i, r] <= space and best[i, space - size[i, r]] + extra[i, r] < best[i + 1, space]:
                    best[i + 1, space] = best[i, space - size[i, r]] + extra[i, r]
                    picked[i + 1, space] = r
    chosen = np.zeros(n, np.int64)
    if not np.isfinite(best[n, steps]):  # Nothing fits, and there is no way back to follow.
        return best[n, steps], chosen
    space = steps
    for i in range(n, 0, -1):
        chosen[i - 1] = picked[i, space]
        space -= size[i - 1, picked[i, space]]
    return best[n, steps], chosen


@loop
def _all_stages(
    forward: Any,
    backward: Any,
    extra: Any,
    kept: Any,
    state: Any,
    workspace: Any,
    counts: Any,
    room: Any,
    first: Any,
    body: Any,
    steps: Any,
    longest: Any,
    out_f: Any,
    out_b: Any,
) -> Any:
    # `best[r, x]` is the least extra seconds of the rows so far within x steps of memory, if the workspace may be `reserves[r]`.
    rows, options = extra.shape
    reserves = np.unique(workspace)
    step = room / steps
    for q in range(counts.shape[0]):
        for i in range(body):
            best = np.zeros((reserves.shape[0], steps + 1))
            new = np.empty(steps + 1)
            f = b = held = plain = 0.0
            row = 0 if i == 0 else first + i
            for j in range(i + 1, min(body, i + longest) + 1):
                stop = rows if j == body else first + j
                while row < stop:
                    f += forward[row]
                    b += backward[row]
                    held += state[row]
                    plain += counts[q] * kept[row, 0]
                    for k in range(reserves.shape[0]):
                        new[:] = np.inf
                        for r in range(options):
                            if workspace[row, r] <= reserves[k]:
                                size = np.ceil(counts[q] * kept[row, r] / step - 1e-9)
                                if size <= steps:
                                    for space in range(int(size), steps + 1):
                                        new[space] = min(new[space], best[k, space - int(size)] + extra[row, r])
                        best[k, :] = new
                    row += 1
                if held > room:
                    break
                least = 0.0 if held + plain <= room else np.inf
                for k in range(reserves.shape[0]):
                    left = (room - held - reserves[k]) // step
                    if left >= 0:
                        least = min(least, best[k, int(left)])
                if np.isfinite(least):
                    out_f[q, i, j], out_b[q, i, j] = f, b + least
