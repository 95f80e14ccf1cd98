"""Merak: an even split, in which every stage recomputes only as many layers as its own memory asks for.

Early stages hold more micro-batches than late ones, so they recompute more layers. A stage recomputes whole layers, those first that free
most bytes per second.

Merak: An Efficient Distributed DNN Training Framework with Automated 3D Parallelism, IEEE TPDS 2023.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from armillary.arena import Technique
from armillary.parameters import parameter

from .planning.in_flight import ORDERS
from .planning.layers import Division, LayeredWork, StagePlan, even_cuts, fastest
from .planning.search import CHUNKS, Setting, needed, settings


@dataclass(frozen=True)
class Merak(Technique):
    """An even split with as little recomputation per stage as fits. Merak, IEEE TPDS 2023."""

    chunks: tuple[int, ...] = parameter(CHUNKS, "numbers of chunks per rank to try", range=(1, 64))
    orders: tuple[str, ...] = parameter(ORDERS, "kinds of schedule to try", choices=ORDERS)

    takes = frozenset({"layered"})

    def plan(self, work: LayeredWork) -> StagePlan:
        """The fastest schedule that fits."""
        return fastest(work, list(self.candidates(work)), "merak")[0]

    def candidates(self, work: LayeredWork) -> Iterator[StagePlan]:
        """One plan per kind of schedule."""
        for setting in settings(work, self.chunks, self.orders):
            cuts = even_cuts(work.layers.body, setting.stages)
            yield setting.plan(Division(work.layers, cuts, self._choice(setting, cuts)), source="merak")

    def _choice(self, setting: Setting, cuts: np.ndarray) -> np.ndarray:
        """Layers are recomputed one after another, on every rank until what its schedule has in flight fits."""
        layers = setting.work.layers
        full = len(layers.options) - 1
        choice = np.zeros(len(layers.types), np.int64)
        division = Division(layers, cuts, choice)
        for rank in range(setting.work.ranks):
            rows = [(row, setting.counts[q]) for q in range(rank, setting.stages, setting.work.ranks) for row in _rows(division.stage(q))]
            freed = [(count * (layers.kept[row, 0] - layers.kept[row, full]), row) for row, count in rows if layers.extra[row, full] > 0]
            for _, row in sorted(freed, key=lambda pair: (-pair[0] / layers.extra[pair[1], full], pair[1])):
                if needed(setting, Division(layers, cuts, choice))[rank] <= setting.work.capacity:
                    break
                choice[row] = full
        return choice


def _rows(stage: slice) -> range:
    return range(stage.start, stage.stop)
