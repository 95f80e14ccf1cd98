"""The analytic makespan: levels of stages one after another, T = Σ_k (in_k + exec_k + out_k), each a maximum over the stages of level k.

exec(S) = read(S) + compute(S) + write(S) on the tier of S. in(S) is a copy into a local tier if S reads initial data or a predecessor is on
the shared tier. out(P) has one copy for each tier Y on which successors of P are: shared to local, local to shared, or local to the same
local tier of other nodes; outputs that nobody reads are copied from a local tier to the shared one. The copies of one stage follow each
other, which is our reading of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.scheduling.workflow.stages.workflow import Floats, Ints

from .configurations import Configurations, Layout
from .costs import Costs

Bools = npt.NDArray[np.bool_]
#: Configurations whose parts are in memory at the same time.
BLOCK = 1 << 16


@dataclass(frozen=True)
class Analytic:
    """Makespans in seconds, and the seconds and winning stage of each part, as arrays by [configuration, level]."""

    total: Floats
    seconds: dict[str, Floats]
    winner: dict[str, Ints]


@dataclass(frozen=True)
class Sensitivity:
    """Shares of the makespan on the critical path: I/O on the shared tier, I/O on local tiers, movement; the rest is computation."""

    shared_io: float
    local_io: float
    movement: float


def makespans(configurations: Configurations, layout: Layout, costs: Sequence[Costs]) -> Analytic:
    """The analytic makespan of every configuration."""
    by_nodes = {cost.nodes: cost for cost in costs}
    total = np.zeros(len(configurations))
    shape = (len(configurations), layout.orders)
    seconds = {part: np.zeros(shape) for part in ("in", "exec", "out")}
    winner = {part: np.full(shape, -1, np.int64) for part in ("in", "exec", "out")}
    for nodes in np.unique(configurations.nodes).tolist():
        if nodes not in by_nodes:
            raise InputError(f"found no costs for {nodes} nodes; expected some for {', '.join(map(str, by_nodes))}", where="nodes")
        rows = np.flatnonzero(configurations.nodes == nodes)
        tier = configurations.tier[rows]
        for s, order in enumerate(layout.order):
            for part, found in _parts(s, tier, layout, by_nodes[nodes]).items():
                before = seconds[part][rows, order]
                wins = (found > before) | (winner[part][rows, order] < 0)
                seconds[part][rows, order] = np.where(wins, found, before)
                winner[part][rows, order] = np.where(wins, s, winner[part][rows, order])
    for order in range(layout.orders):
        total += seconds["in"][:, order] + seconds["exec"][:, order] + seconds["out"][:, order]
    return Analytic(total, seconds, winner)


def totals(configurations: Configurations, layout: Layout, costs: Sequence[Costs]) -> Floats:
    """The makespans alone, block by block, because the parts of millions of configurations would not fit into memory."""
    found = np.empty(len(configurations))
    for start in range(0, len(found), BLOCK):
        rows = np.arange(start, min(start + BLOCK, len(found)))
        found[rows] = makespans(configurations.at(rows), layout, costs).total
    return found


def _parts(s: int, tier: npt.NDArray[np.int8], layout: Layout, cost: Costs) -> dict[str, Floats]:
    mine = tier[:, s].astype(np.int64)
    local = mine != layout.shared
    return {
        "in": np.where(local & fetches(s, tier, layout), cost.stage_in[s, mine], 0.0),
        "exec": cost.read[s, mine] + cost.compute[s] + cost.write[s, mine],
        "out": _out(s, tier, mine, layout, cost),
    }


def fetches(s: int, tier: npt.NDArray[np.int8], layout: Layout) -> Bools:
    """Whether a stage reads initial data or data of a stage on the shared tier."""
    found = np.full(len(tier), layout.initial[s])
    for p in layout.before[s]:
        found |= tier[:, p] == layout.shared
    return found


def _out(s: int, tier: npt.NDArray[np.int8], mine: Ints, layout: Layout, cost: Costs) -> Floats:
    # A layout that was read from a table may have flushes for stages without successors only.
    found: Floats = cost.flush[s, mine].copy()
    for to in range(len(layout.tiers)):
        wanted = np.zeros(len(tier), bool)
        for other in layout.after[s]:
            wanted |= tier[:, other] == to
        found += np.where(wanted, cost.stage_out[s, mine, to], 0.0)
    return found


def movements(configurations: Configurations, layout: Layout) -> Ints:
    """The number of stage-in and stage-out actions of each configuration."""
    tier = configurations.tier
    count = np.zeros(len(tier), np.int64)
    for s in range(len(layout.stages)):
        local = tier[:, s] != layout.shared
        count += local & fetches(s, tier, layout)
        if not layout.after[s]:
            count += local
        for to in range(len(layout.tiers)):
            wanted = np.zeros(len(tier), bool)
            for other in layout.after[s]:
                wanted |= tier[:, other] == to
            count += wanted & (local | (to != layout.shared))
    return count


def critical_path(n: int, found: Analytic, layout: Layout, tasks_per_node: Ints) -> str:
    """The stages that won the maxima, as tokens: `stage_in_S(4) -> read_S -> write_S -> stage_out_S`."""
    tokens = []
    for order in range(layout.orders):
        if found.seconds["in"][n, order] > 0:
            s = int(found.winner["in"][n, order])
            tokens.append(f"stage_in_{layout.stages[s]}({tasks_per_node[s]})")
        s = int(found.winner["exec"][n, order])
        tokens += [f"read_{layout.stages[s]}", f"write_{layout.stages[s]}"]
        if found.seconds["out"][n, order] > 0:
            tokens.append(f"stage_out_{layout.stages[int(found.winner['out'][n, order])]}")
    return " -> ".join(tokens)


def sensitivity(n: int, found: Analytic, tier: npt.NDArray[np.int8], layout: Layout, cost: Costs) -> Sensitivity:
    """The shares of one configuration's makespan."""
    shared = local = 0.0
    for order in range(layout.orders):
        s = int(found.winner["exec"][n, order])
        t = int(tier[s])
        moved = float(cost.read[s, t] + cost.write[s, t])
        if t == layout.shared:
            shared += moved
        else:
            local += moved
    movement = float(found.seconds["in"][n].sum() + found.seconds["out"][n].sum())
    total = float(found.total[n]) or 1.0
    return Sensitivity(shared / total, local / total, movement / total)
