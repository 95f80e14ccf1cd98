"""RAN: draw on all survivors, each as much as it can send, and let the switches add up the streams that pass.

Because the sum is made in flight, the destination's downlink carries the block once and helpers need not receive. Only uplinks can then
be scarce, and that is eased by using every surviving node of the stripe in proportion to its free bandwidth, rather than k of them. One
procedure covers degraded reads, several lost blocks, whole nodes and several nodes.

1. For one block, R = min(d_r, aggregation, the water-filling level of the uplinks) (`shares.water_filling`), which may exceed every single
   uplink.
2. Shares become byte ranges of k different helpers each by the wrap-around rule (`shares.wrap_around`); ranges below a slice join their
   neighbour.
3. For many blocks, a linear program, a greedy and whole shares give shares and destinations (`unified`), and the simulation of the next
   64 blocks at a time chooses among them; the linear program is left out where it would be too large.
4. For two blocks of a stripe, each helper sends a slice of its own for each block, because switches only XOR; with `switch_multiplies`
   one slice serves both.
5. In racks whose switch cannot add up, the fastest helper does it (`aggregation`).
6. When the bandwidth drifts, the bytes that are not yet rebuilt are planned again every `replan_s` seconds, if the bandwidth of any node
   changed by more than a tenth.

The paper optimises uplinks and downlinks over all available nodes, aggregates in the network, and has one procedure for all failures.
The formulas and steps 1 to 6 in this form are our design.

RAN: Accelerating Data Repair with Available Nodes in Erasure-Coded Storage, IEEE CLUSTER 2025.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from armillary.claim import Claim, Gain, Kind
from armillary.errors import InputError
from armillary.kernels import loop
from armillary.parameters import parameter

from .plans.aggregation import aggregation_edges, relays
from .plans.plan import PIPELINE, RepairPlan
from .plans.planner import Planner
from .plans.problem import Problem
from .plans.shares import ranges, water_filling
from .plans.unified import MOST_VARIABLES, Shares, busiest, by_greedy, by_linear_program, by_subsets, least_used, variables

SINGLE = ("conventional", "ppr", "rp", "pivot", "fullrepair", "switch-tree")
#: The techniques that may rebuild to the same destinations.
MANY = (*SINGLE, "repairboost")
#: Shares of larger problems are compared on this many of their blocks.
TRIED_BLOCKS = 1_000


class Way(NamedTuple):
    """How a plan is run: whether the ranges of a block are paced, and whether the waiting block with the idlest links starts first."""

    paced: bool = True
    fit: bool = True


WAYS = tuple(Way(paced, fit) for paced in (False, True) for fit in (True, False))


@dataclass(frozen=True)
class Ran(Planner):
    """All survivors, weighted by what they can send and summed in the network (CLUSTER 2025)."""

    name: ClassVar[str] = "ran"

    solver: Literal["auto", "linear-program", "greedy"] = parameter(
        "auto",
        "which shares are tried for many blocks; greedy leaves out the linear program, as auto does above 20 000 variables",
        choices=("auto", "linear-program", "greedy"),
    )
    switch_multiplies: bool = parameter(False, "whether switches multiply too, so that a slice serves both lost blocks of a stripe")
    replan_s: float | None = parameter(1.0, "seconds between looks at the bandwidth; none keeps the first plan", range=(0.001, 1e6))
    drift: float = parameter(0.1, "relative change of a node's bandwidth that is worth a new plan", range=(0.0, 10.0))

    claims = (
        Claim(
            "repair_throughput",
            over=SINGLE,
            by=Gain(percent=(68.9, None)),
            on=Kind("degraded-read"),
            aggregate="max",
            honest=(40.0, None),
            part=15.0,
            why="the paper's bandwidths are not known; bounds over FullRepair are 1.3 to 1.9 where downlinks are scarce, 1 elsewhere",
            says="degraded reads up to 68.9 % faster than the best of the others",
            source="abstract",
        ),
        Claim(
            "repair_throughput",
            over=MANY,
            by=Gain(percent=(266.6, None)),
            on=(Kind("node"), Kind("two-nodes")),
            aggregate="max",
            honest=(100.0, None),
            part=30.0,
            why="the paper's rivals are not described; ours may use the same destinations and choose least-used helpers",
            says="node repair up to 266.6 % faster than the best of the others",
            source="abstract",
        ),
    )

    def plan(self, problem: Problem) -> RepairPlan:
        """A plan for every lost block, of one stripe or of many."""
        merged, members = _stripes_once(problem) if self.switch_multiplies else (problem, None)
        one = self._one(merged) if len(merged) == 1 and self.solver == "auto" else None
        found, way = self._many(merged) if one is None else (one, Way())
        if members is not None:
            found = _spread(problem, found, members)
        return laid_out(problem, found, self.name, uplink=members, way=way)

    def shares(self, problem: Problem) -> Shares:
        """What every survivor sends of every lost block, where each is rebuilt, and how long the busiest link takes for that."""
        found = self._one(problem) if len(problem) == 1 and self.solver == "auto" else None
        return self._many(problem)[0] if found is None else found

    def _many(self, problem: Problem) -> tuple[Shares, Way]:
        """(shares, the way to run them) that take least time in the simulation.

        All candidates balance the whole repair, but only some blocks are repaired at a time, and these share links fairly. What that
        costs depends on how many links each block touches, which no linear program sees. So the spread shares of the greedy, the nearly
        whole ones of the linear program and whole ones are all tried, in each way to run them.
        """
        exact = self.solver == "linear-program" or (self.solver == "auto" and variables(problem) <= MOST_VARIABLES)
        rng = np.random.default_rng(len(problem))
        found = [by_linear_program(problem)] if exact else []
        if self.solver == "linear-program" or len(problem) == 1:
            return (found or [by_greedy(problem, rng)])[0], Way()
        found += [
            by_greedy(problem, rng),
            *(by_greedy(problem, rng, destination=shares.destination) for shares in found),
            by_subsets(problem),
        ]
        return min(itertools.product(found, WAYS), key=lambda tried: _tried_s(problem, *tried))

    def _one(self, problem: Problem) -> Shares | None:
        """The closed form for one block, unless racks or switches limit it; then None."""
        fabric = problem.fabric
        nodes, indices = problem.survivors(0)
        up = fabric.up[nodes]
        options = np.flatnonzero(problem.allowed[0])
        destination = options[np.argmax(fabric.down[options])]
        level = water_filling(up, problem.code.k)
        rate = min(level, float(fabric.down[destination]))
        if rate <= 0:
            free = int((up > 0).sum())
            raise InputError(
                f"found {free} survivors with uplink free; expected at least k = {problem.code.k}", where=problem.stripe_name(0)
            )
        w = np.zeros(problem.holder.shape)
        w[0, indices] = filled(up, rate, problem.code.k)
        found = Shares(w, np.array([destination]), float(problem.size[0]) / rate)
        return found if busiest(problem, w, found.destination) <= found.seconds * (1 + 1e-9) else None


def filled(up: np.ndarray, rate: float, k: int) -> np.ndarray:
    """Shares min(u_i, R) / R, fastest helpers first, until they add up to k; this gives few ranges where the destination limits."""
    able = np.minimum(up, rate) / rate
    order = np.argsort(-able, kind="stable")
    before = np.cumsum(able[order]) - able[order]
    w = np.zeros(len(up))
    w[order] = np.clip(k - before, 0.0, able[order])
    return np.minimum(w * (k / w.sum()), 1.0)


def _tried_s(problem: Problem, shares: Shares, way: Way) -> float:
    """Seconds that shares take in the simulation; those of the first `TRIED_BLOCKS` blocks where there are more."""
    rows = slice(TRIED_BLOCKS)
    some = replace(
        problem, stripe=problem.stripe[rows], index=problem.index[rows], holder=problem.holder[rows], allowed=problem.allowed[rows],
        size=problem.size[rows],
    )  # fmt: skip
    return laid_out(some, Shares(shares.w[rows], shares.destination[rows], shares.seconds), "ran", way=way).seconds


def laid_out(problem: Problem, shares: Shares, technique: str, uplink: np.ndarray | None = None, *, way: Way | None = None) -> RepairPlan:
    """Turns shares into byte ranges and aggregation trees."""
    fabric, way = problem.fabric, way or Way()
    each = np.ones(len(problem)) if uplink is None else 1.0 / np.bincount(uplink)[uplink]
    columns = _lay_out(
        problem.holder, shares.w, shares.destination, problem.size, problem.code.k, problem.slice, fabric.rack, fabric.aggregate,
        fabric.core_aggregate, relays(problem), fabric.down,
    )  # fmt: skip
    block, start, stop, first, child, parent, source = columns
    shape = np.full(len(block), PIPELINE, np.int8)
    return RepairPlan(
        problem,
        technique,
        shares.seconds,
        block,
        start,
        stop,
        shares.destination[block],
        shape,
        each[block],
        first,
        child,
        parent,
        source,
        fit=way.fit,
        paced=way.paced,
    )


@loop
def _lay_out(holder, w, destination, size, k, slice_bytes, rack, aggregate, core, relay, down):
    blocks, width = holder.shape
    most = blocks * (width + 1)
    block, start, stop = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    first = np.zeros(most + 1, np.int64)
    room = blocks * (width + 1) * (k + 2 * len(aggregate) + 2)
    child, parent, source = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int16)
    nodes, indices, share = np.empty(width, np.int64), np.empty(width, np.int64), np.empty(width)
    some_nodes, some_indices = np.empty(k, np.int64), np.empty(k, np.int64)
    s, at = 0, 0
    for row in range(blocks):
        count = 0
        # Going rack by rack keeps the helpers of a rack at work for as little of the block as possible.
        for r in range(len(aggregate)):
            for i in range(width):
                if holder[row, i] >= 0 and rack[holder[row, i]] == r and w[row, i] > 1e-12:
                    nodes[count], indices[count], share[count] = holder[row, i], i, w[row, i]
                    count += 1
        cuts, chosen = ranges(share[:count], k)
        begin = 0
        for p in range(len(chosen)):
            end = size[row] if p == len(chosen) - 1 else int(np.round(cuts[p + 1] * size[row]))
            short = end - begin < slice_bytes
            if short and p < len(chosen) - 1:
                continue
            if short and begin > 0:
                # The last range is shorter than a slice, so the one before takes it.
                stop[s - 1] = size[row]
                continue
            for j in range(k):
                some_nodes[j], some_indices[j] = nodes[chosen[p, j]], indices[chosen[p, j]]
            _by_rack(some_nodes, some_indices, rack)
            at = aggregation_edges(
                some_nodes, some_indices, k, destination[row], rack, aggregate, core, relay[row], down, child, parent, source, at
            )
            block[s], start[s], stop[s] = row, begin, end
            s += 1
            first[s] = at
            begin = end
    return block[:s], start[:s], stop[:s], first[: s + 1], child[:at].copy(), parent[:at].copy(), source[:at].copy()


@loop
def _by_rack(nodes, indices, rack):
    for i in range(1, len(nodes)):
        j = i
        while j > 0 and rack[nodes[j]] < rack[nodes[j - 1]]:
            nodes[j], nodes[j - 1] = nodes[j - 1], nodes[j]
            indices[j], indices[j - 1] = indices[j - 1], indices[j]
            j -= 1


def _stripes_once(problem: Problem) -> tuple[Problem, np.ndarray]:
    """The problem with one row per stripe, whose size counts once, and the row of each lost block in it."""
    _, keep, member = np.unique(problem.stripe, return_index=True, return_inverse=True)
    once = replace(
        problem, stripe=problem.stripe[keep], index=problem.index[keep], holder=problem.holder[keep], allowed=problem.allowed[keep],
        size=problem.size[keep],
    )  # fmt: skip
    return once, member


def _spread(problem: Problem, found: Shares, member: np.ndarray) -> Shares:
    """Gives the shares of each stripe to each of its lost blocks; a second block goes to the least-used destination."""
    load = np.zeros(problem.fabric.nodes)
    destination = np.empty(len(problem), np.int64)
    taken: dict[int, list[int]] = {}
    for row in range(len(problem)):
        used = taken.setdefault(int(member[row]), [])
        destination[row] = least_used(problem, row, load, used) if used else found.destination[member[row]]
        used.append(int(destination[row]))
        load[destination[row]] += problem.size[row]
    w = found.w[member]
    up = np.zeros(problem.fabric.nodes)
    for row in np.unique(member, return_index=True)[1]:
        held = problem.holder[row] >= 0
        np.add.at(up, problem.holder[row][held], problem.size[row] * w[row][held])
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.concatenate([up / problem.fabric.up, load / problem.fabric.down])
    return Shares(w, destination, float(np.nanmax(times)))
