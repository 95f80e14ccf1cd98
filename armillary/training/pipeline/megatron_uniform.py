"""Megatron's uniform plan: equally many layers for every stage, and one option of recomputation for all of them.

It is what most people run. The kind of schedule and the number of chunks are the best of those that every planner here may choose.

Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, SC 2021.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from armillary.arena import Technique
from armillary.parameters import parameter

from .planning.in_flight import ORDERS
from .planning.layers import Division, LayeredWork, StagePlan, even_cuts, fastest
from .planning.search import CHUNKS, settings


@dataclass(frozen=True)
class MegatronUniform(Technique):
    """An even split with one option of recomputation. Megatron-LM, SC 2021."""

    chunks: tuple[int, ...] = parameter(CHUNKS, "numbers of chunks per rank to try", range=(1, 64))
    orders: tuple[str, ...] = parameter(ORDERS, "kinds of schedule to try", choices=ORDERS)

    takes = frozenset({"layered"})

    def plan(self, work: LayeredWork) -> StagePlan:
        """The fastest schedule and option that fit."""
        return fastest(work, list(self.candidates(work)), "megatron-uniform")[0]

    def candidates(self, work: LayeredWork) -> Iterator[StagePlan]:
        """Every kind of schedule with every option."""
        for setting in settings(work, self.chunks, self.orders):
            for option in range(len(work.layers.options)):
                yield setting.plan(
                    Division.uniform(work.layers, even_cuts(work.layers.body, setting.stages), option), source="megatron-uniform"
                )
