"""EPR order with link-aware nodes: the hungriest jobs first, each on the QPUs whose links suit its cut.

Jobs are taken as `epr` takes them. A job gets the set S of QPUs, among those with enough free qubits, that minimises Σ w_ab · pair_ab over
the gates w_ab between its blocks on a and b, where pair_ab is the mean time of a pair: |S| is as small as possible or one larger. All
sets are weighed up to 2,000; beyond, sets grow greedily from the best links.

Advanced Scheduling Strategies for Distributed Quantum Computing Jobs, arXiv 2602.24152. The formula is our design.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim, Gain, Kind, Parity, parameter

from .epr import by_demand
from .planning.placing import on_best_links, on_most_free
from .planning.strategy import Start, State, Strategy, filled

WHY = "the abstract has no figure; above 60 % a baseline would place on the slowest links always"


@dataclass(frozen=True)
class EprNodes(Strategy):
    """The largest EPR demand first, on the best links."""

    by_demand: bool = parameter(True, "whether jobs with a large EPR demand go first; otherwise they go in queue order")
    by_links: bool = parameter(True, "whether QPUs are chosen by their links; otherwise those with the most free qubits")

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim("makespan_s", over=("fifo", "list", "resource-priority", "epr"), by=Gain(percent=(0, None)), on=Kind("heterogeneous"),
              honest=(5, 60), part=0, why=WHY, says="a shorter makespan by choosing links", source="paper"),
        Claim("makespan_s", over="epr", by=Parity(within=0.05), on=Kind("homogeneous"), source="ours",
              says="as good as epr where all links are equal"),
        Claim("fairness", over=("fifo", "list", "resource-priority", "epr"), by=Gain(ratio=(1.0, None)),
              on=Kind("batch"), says="the fairest of the slot strategies", source="paper"),
        Claim("makespan_s", over="epr", by=Gain(ratio=(1 / 1.1, None)), on=Kind("misfit"), source="ours",
              says="at most 10 % slower than epr where the rates that it is told belong to other links"),
    )  # fmt: skip

    def select(self, state: State) -> list[Start]:
        """The jobs that start now."""
        order = by_demand(state) if self.by_demand else state.queue
        return filled(state, order, on_best_links if self.by_links else on_most_free)
