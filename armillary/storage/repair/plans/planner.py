"""The frame that all techniques share, which turns answers for single blocks into plans for one or many lost blocks.

A technique answers for one lost block: into which parts to cut it, and the tree of each part (`split`). For many lost blocks the frame
takes them one by one and counts what each node has been given already. A node that has `load` bytes to do offers this block u·B/(load
+ B), which ranks nodes by when they would finish, so the least-used helpers and destinations are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from armillary.arena import NotForThisCase, Technique
from armillary.errors import InputError

from .aggregation import aggregation_edges, relays
from .plan import PIPELINE, RepairPlan
from .problem import Fabric, Problem
from .unified import least_used

#: Stands for the destination in the edges of a `Part`.
DESTINATION = -1


class Part(NamedTuple):
    """A share of the block and its edges (child, parent) by place among the survivors, children first, or helpers for the switches."""

    share: float
    edges: tuple[tuple[int, int], ...] = ()
    helpers: tuple[int, ...] = ()


class Split(NamedTuple):
    """How one block is rebuilt: the rate in bytes/s, the shape of the trees, and the parts, whose shares add up to 1."""

    rate: float
    shape: int
    parts: Sequence[Part]


class Ends(NamedTuple):
    """One lost block: what each survivor offers up and down in bytes/s, the destination's downlink, and the racks of all."""

    up: np.ndarray
    down: np.ndarray
    into: float
    k: int
    size: float
    rack: np.ndarray
    into_rack: int
    slice: float = 0.0


@dataclass(frozen=True)
class Planner(Technique):
    """A technique that plans block by block; subclasses define `split`."""

    #: The name of the technique in plans.
    name: ClassVar[str] = "planner"
    #: Whether a single stripe can be planned.
    single_blocks: ClassVar[bool] = True
    #: Seconds between looks at the bandwidth while the plan runs; None keeps the plan as it was made.
    replan_s: float | None = field(default=None, init=False, repr=False)

    def split(self, ends: Ends) -> Split:
        """The best way of this technique to rebuild one lost block."""
        raise NotImplementedError

    def offers(self, fabric: Fabric, load_up: np.ndarray, load_down: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray]:
        """What each node offers to one more block, up and down; the nodes that would finish last offer least."""
        return fabric.up * (size / (load_up + size)), fabric.down * (size / (load_down + size))

    def plan(self, problem: Problem) -> RepairPlan:
        """A plan for every lost block."""
        if not self.single_blocks and len(np.unique(problem.stripe)) < 2:
            raise NotForThisCase("spreads many blocks over the nodes; one stripe has nothing to spread")
        fabric, k = problem.fabric, problem.code.k
        book = PlanBook(problem, self.name)
        load_up, load_down = np.zeros(fabric.nodes), np.zeros(fabric.nodes)
        taken: dict[int, list[int]] = {}
        for row in range(len(problem)):
            size = float(problem.size[row])
            nodes, indices = problem.survivors(row)
            siblings = taken.setdefault(int(problem.stripe[row]), [])
            destination = least_used(problem, row, load_down, siblings)
            siblings.append(destination)
            share_up, share_down = self.offers(fabric, load_up, load_down, size) if len(problem) > 1 else (fabric.up, fabric.down)
            ends = Ends(
                share_up[nodes],
                share_down[nodes],
                float(share_down[destination]),
                k,
                size,
                fabric.rack[nodes],
                int(fabric.rack[destination]),
                float(problem.slice),
            )
            if (ends.up > 0).sum() < k:
                free = int((ends.up > 0).sum())
                raise InputError(f"found {free} survivors with uplink free; expected at least k = {k}", where=problem.stripe_name(row))
            split = self.split(ends)
            if not split.rate > 0:
                raise InputError(f"{self.name} finds no helpers with bandwidth free both ways", where=problem.stripe_name(row))
            book.add(row, nodes, indices, destination, split, load_up, load_down)
        return book.plan(load_up, load_down)


class PlanBook:
    """A plan under construction; ranges are cut at whole bytes, and ranges below a slice join their neighbour."""

    def __init__(self, problem: Problem, technique: str) -> None:
        self.problem = problem
        self.technique = technique
        self._relays: np.ndarray | None = None
        self._subs: list[tuple[int, int, int, int, int]] = []
        self._first = [0]
        self._child: list[int] = []
        self._parent: list[int] = []
        self._source: list[int] = []
        self._rates = 0.0

    def add(
        self, row: int, nodes: np.ndarray, indices: np.ndarray, destination: int, split: Split, load_up: np.ndarray, load_down: np.ndarray
    ) -> None:
        """Adds one lost block, and its cost to the loads of the nodes."""
        size = int(self.problem.size[row])
        stops = cut(np.cumsum([part.share for part in split.parts]), size, self.problem.slice)
        start = 0
        for part, stop in zip(split.parts, stops):
            if stop <= start:
                continue
            if part.helpers:
                self._aggregate(row, nodes, indices, destination, part.helpers)
                np.add.at(load_up, nodes[list(part.helpers)], stop - start)
                load_down[destination] += stop - start
            else:
                for child, parent in part.edges:
                    above = destination if parent == DESTINATION else int(nodes[parent])
                    here = int(nodes[child])
                    self._child.append(here)
                    self._parent.append(above)
                    self._source.append(int(indices[child]))
                    load_up[here] += stop - start
                    load_down[above] += stop - start
            self._subs.append((row, start, stop, destination, split.shape))
            self._first.append(len(self._child))
            start = stop
        self._rates = split.rate

    def _aggregate(self, row: int, nodes: np.ndarray, indices: np.ndarray, destination: int, helpers: tuple[int, ...]) -> None:
        fabric = self.problem.fabric
        if self._relays is None:
            self._relays = relays(self.problem)
        chosen = sorted(helpers, key=lambda h: int(fabric.rack[nodes[h]]))
        most = 2 * len(chosen) + 2 * fabric.racks + 2
        child, parent, source = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
        count = aggregation_edges(
            nodes[chosen], indices[chosen], len(chosen), destination, fabric.rack, fabric.aggregate, fabric.core_aggregate,
            self._relays[row], fabric.down, child, parent, source, 0,
        )  # fmt: skip
        self._child += child[:count].tolist()
        self._parent += parent[:count].tolist()
        self._source += source[:count].tolist()

    def plan(self, load_up: np.ndarray, load_down: np.ndarray) -> RepairPlan:
        """The plan, which counts on the rate of a single block, or on every node finishing its load."""
        problem = self.problem
        if len(problem) == 1:
            least_s = float(problem.size[0]) / self._rates
        else:
            with np.errstate(divide="ignore", invalid="ignore"):
                times = np.concatenate([load_up / problem.fabric.up, load_down / problem.fabric.down])
            least_s = float(np.nanmax(times))
        columns = np.array(self._subs, np.int64).reshape(-1, 5).T
        first, child, parent, source = (np.array(x, np.int64) for x in (self._first, self._child, self._parent, self._source))
        whole = np.ones(columns.shape[1])
        return RepairPlan(
            problem, self.technique, least_s, columns[0], columns[1], columns[2], columns[3], columns[4].astype(np.int8), whole, first,
            child, parent, source,
        )  # fmt: skip


def cut(ends: np.ndarray, size: int, slice_bytes: int) -> list[int]:
    """Byte positions at shares `ends` of a block; a part shorter than a slice joins the next one, or the one before if it is last."""
    least = min(slice_bytes, size)
    stops = [min(round(float(end) * size), size) for end in ends]
    stops[-1] = size
    kept, start = list(stops), 0
    for i, stop in enumerate(stops[:-1]):
        if stop - start < least:
            kept[i] = start
        start = kept[i]
    # A short last part joins the one before it.
    if len(kept) > 1 and size - start < least:
        before = max((i for i in range(len(kept) - 1) if kept[i] == start and (kept[i - 1] if i else 0) < start), default=-1)
        if before >= 0:
            for i in range(before, len(kept)):
                kept[i] = size
    return kept


__all__ = ["DESTINATION", "Ends", "Part", "PIPELINE", "PlanBook", "Planner", "Split", "cut", "least_used"]
