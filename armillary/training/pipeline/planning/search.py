"""What every planner of this arena may choose from: kinds of schedule and numbers of chunks per rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..simulation.simulator import FloatArray
from .in_flight import ORDERS, in_flight, live, order
from .layers import Division, LayeredWork, StagePlan
from .promise import promised

#: Numbers of chunks per rank that planners try.
CHUNKS = (1, 2, 4)


@dataclass(frozen=True, eq=False)
class Setting:
    """One kind of schedule with a number of chunks.

    `counts` says how many micro-batches each stage, in pipeline order, has in flight at its rank's worst moment, and `moments` how many of
    each chunk a rank has at all moments that may be its worst.
    """

    work: LayeredWork
    order: str
    chunks: int
    counts: FloatArray
    moments: tuple[FloatArray, ...]

    @property
    def stages(self) -> int:
        """The number of stages."""
        return self.work.ranks * self.chunks

    def rank(self, stage: int) -> int:
        """The rank of a stage."""
        return stage % self.work.ranks

    def plan(self, division: Division, predicted: float | None = None, **notes: object) -> StagePlan:
        """A plan with this kind of schedule; it promises the closed form unless something else is given."""
        work = self.work
        schedule = order(self.order, work.ranks, work.micros, self.chunks)
        if predicted is None:
            predicted = promised(division, self.order, work.ranks, work.micros, self.chunks)
        predicted += work.exposed(division)
        return StagePlan(division, schedule, predicted, self.order, self.chunks, notes=notes)


def settings(work: LayeredWork, chunks: Sequence[int] = CHUNKS, orders: Sequence[str] = ORDERS) -> Iterator[Setting]:
    """1F1B and ZB-H1 where one chunk is allowed, interleaved 1F1B for each further number of chunks that the layers allow."""
    for v in chunks:
        if v <= work.depth:
            for name in (each for each in (("1f1b", "zb-h1") if v == 1 else ("interleaved",)) if each in orders):
                yield Setting(work, name, v, in_flight(name, work.ranks, work.micros, v), live(name, work.ranks, work.micros, v))


def needed(setting: Setting, division: Division) -> FloatArray:
    """Bytes that each rank needs by the counts of its schedule: overhead, state, activations in flight and workspace."""
    work, layers = setting.work, division.layers
    rows = np.arange(len(division.choice))
    kept, space = layers.kept[rows, division.choice], layers.workspace[rows, division.choice]
    state, held = division.sums(layers.state), division.sums(kept)
    most = np.array([space[division.stage(q)].max() for q in range(division.stages)])
    total = np.zeros(work.ranks)
    for rank in range(work.ranks):
        mine = np.arange(rank, division.stages, work.ranks)
        total[rank] = work.overhead + state[mine].sum() + (setting.moments[rank] * held[mine]).sum(1).max() + most[mine].max()
    return total
