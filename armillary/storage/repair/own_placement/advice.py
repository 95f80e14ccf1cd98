"""Repair planning on a user's own placement and bandwidth: a plan for the lost blocks, and how long the repair of each node would take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError

from ..plans.plan import RepairPlan
from .bandwidth import Bandwidth
from .placement import BLOCK, SLICE, Lost, Placement

if TYPE_CHECKING:
    import polars as pl


def plan_repair(
    placement: Placement, lost: Lost, bandwidth: Bandwidth, k: int | None = None, technique: str | Any = "ran", *,
    destination: str | None = None, block: int = BLOCK, slice: int = SLICE, time: float = 0.0, strict: bool = False,
) -> RepairPlan:  # fmt: skip
    """The plan that rebuilds `lost`: a node, several nodes, (stripe, index) pairs, or None for all blocks that the placement lacks.

    `bandwidth` is taken at `time`. `technique` is the name of a technique of the arena, or a planner. Blocks of `block` bytes are sent in
    slices of `slice` bytes. If `k` is given, it must be that of the placement's code.
    """
    from ..arena import repair

    if k is not None and k != placement.code.k:
        raise InputError(f"found k = {k}; expected {placement.code.k} as in the placement")
    planner: Any = repair.make(technique) if isinstance(technique, str) else technique
    problem = placement.problem(lost, bandwidth, destination=destination, block=block, slice=slice, time=time, strict=strict)
    plan: RepairPlan = planner.plan(problem)
    return plan


def headroom(placement: Placement, bandwidth: Bandwidth, *, block: int = BLOCK, time: float = 0.0) -> pl.DataFrame:
    """How long the repair of each node would take if it failed now: node, blocks, repair_s, MBps, waits_for; the longest comes first.

    Times are those of RAN's plan in the simulation with the bandwidth at `time`, and `waits_for` names the busiest link. A node whose loss
    could not be repaired has an infinite time, and `waits_for` says why.
    """
    import polars as pl

    from ..ran import Ran

    rows = []
    for name in placement.nodes:
        blocks = int((placement.holder == placement.nodes.index(name)).sum())
        if not blocks:
            continue
        try:
            problem = placement.problem(name, bandwidth, block=block, time=time)
            plan = Ran().plan(problem)
            rows.append((name, blocks, plan.seconds, blocks * block / plan.seconds / 1e6, _busiest_pool(plan)))
        except InputError as error:
            rows.append((name, blocks, float("inf"), 0.0, str(error)))
    schema = {"node": pl.String, "blocks": pl.Int64, "repair_s": pl.Float64, "MBps": pl.Float64, "waits_for": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row").sort("repair_s", descending=True)


def _busiest_pool(plan: RepairPlan) -> str:
    from ..simulation.flows import traffic

    problem, fabric = plan.problem, plan.problem.fabric
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.nan_to_num(traffic(plan) / fabric.capacities, nan=0.0)
    worst = int(np.argmax(times))
    n, r = fabric.nodes, fabric.racks
    if worst < 2 * n:
        return f"{'uplink' if worst < n else 'downlink'} of {problem.node_name(worst % n)}"
    kind, rack = divmod(worst - 2 * n, r)
    return "core" if kind == 3 else f"{('uplink', 'downlink', 'switch')[kind]} of rack {rack}"
