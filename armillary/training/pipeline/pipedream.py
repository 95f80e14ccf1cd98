"""PipeDream's planner: dynamic programming over the cuts, so that the slowest stage is as fast as can be.

A stage whose activations do not fit recomputes all of its layers, and its time grows by that. Where a rank has several chunks, each of
them may take an equal share of its memory.

PipeDream: Generalized Pipeline Parallelism for DNN Training, SOSP 2019.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from armillary.arena import Technique
from armillary.parameters import parameter

from .planning.in_flight import ORDERS
from .planning.layers import Division, LayeredWork, Layers, StagePlan, fastest
from .planning.search import CHUNKS, Setting, settings
from .planning.staged import least_longest
from .simulation.simulator import FloatArray

#: Entries of the table of stages beyond which it is not made.
MOST_ENTRIES = 1 << 24


@dataclass(frozen=True)
class PipeDream(Technique):
    """The partition with the fastest slowest stage, with full recomputation where memory asks for it. PipeDream, SOSP 2019."""

    chunks: tuple[int, ...] = parameter(CHUNKS, "numbers of chunks per rank to try", range=(1, 64))
    orders: tuple[str, ...] = parameter(ORDERS, "kinds of schedule to try", choices=ORDERS)

    takes = frozenset({"layered"})

    def plan(self, work: LayeredWork) -> StagePlan:
        """The fastest schedule that fits."""
        return fastest(work, list(self.candidates(work)), "pipedream")[0]

    def candidates(self, work: LayeredWork) -> Iterator[StagePlan]:
        """One plan per kind of schedule for which a partition fits."""
        for setting in settings(work, self.chunks, self.orders):
            if setting.stages * (work.layers.body + 1) ** 2 > MOST_ENTRIES:
                continue
            seconds, full = _stage_table(setting)
            cuts = least_longest(seconds)
            if cuts is None:
                continue
            choice = np.zeros(len(work.layers.types), np.int64)
            for q in range(setting.stages):
                if full[q, cuts[q], cuts[q + 1]]:
                    choice[work.layers.rows(int(cuts[q]), int(cuts[q + 1]))] = len(work.layers.options) - 1
            yield setting.plan(Division(work.layers, cuts, choice), source="pipedream")


def _stage_table(setting: Setting) -> tuple[FloatArray, np.ndarray]:
    """(seconds of stage q with the layers i to j, whether it recomputes): infinite where it does not fit either way."""
    work, layers = setting.work, setting.work.layers
    last = len(layers.options) - 1
    totals = {
        name: _running(layers, values)
        for name, values in (
            ("time", layers.forward + layers.backward), ("extra", layers.extra[:, last]), ("state", layers.state),
            ("none", layers.kept[:, 0]), ("full", layers.kept[:, last]),
        )
    }  # fmt: skip
    room = (work.capacity - work.overhead) / setting.chunks
    count = setting.counts[:, None, None]
    plain = totals["state"] + count * totals["none"] <= room
    again = totals["state"] + count * totals["full"] + layers.workspace.max() <= room
    seconds = np.where(plain, totals["time"], np.where(again, totals["time"] + totals["extra"], np.inf))
    return seconds, again & ~plain


def _running(layers: Layers, values: FloatArray) -> FloatArray:
    """Sums over the body layers from i to before j, head and tail included at the ends, as a table (1, L + 1, L + 1)."""
    body = values[layers.first : layers.first + layers.body].copy()
    body[0] += values[: layers.first].sum()
    body[-1] += values[layers.first + layers.body :].sum()
    total = np.concatenate([[0.0], np.cumsum(body)])
    return (total[None, :] - total[:, None])[None]
