"""Small workflows and tables that several tests use."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from armillary.scheduling.workflow import Configurations, Costs, Layout, Machine, Tier, Workflow

#: Two stages A → B on a shared tier b and a local tier s.
TWO = Layout(("A", "B"), (0, 1), ((), (0,)), (True, False), ("b", "s"), 0, (1, 1))
TWO_COSTS = Costs(
    1,
    read=np.array([[10.0, 1.0], [6.0, 0.6]]),
    write=np.array([[2.0, 0.5], [2.0, 0.2]]),
    compute=np.zeros(2),
    stage_in=np.array([[0.0, 5.0], [0.0, 0.3]]),
    stage_out=np.array([[[0.0, 4.0], [3.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]]),
    flush=np.array([[0.0, 0.0], [0.0, 1.0]]),
    tasks_per_node=np.ones(2, np.int64),
)

GENOME = Layout(
    ("individuals", "sifting", "merge", "overlap", "frequency"), (0, 0, 1, 2, 2), ((), (), (0,), (1, 2), (1, 2)),
    (True, True, False, False, False), ("beegfs", "ssd", "tmpfs"), 0, (300, 10, 10, 10, 10),
)  # fmt: skip


def random_costs(layout: Layout, nodes: int, rng: np.random.Generator) -> Costs:
    """Cells without order or ties."""
    S, T = len(layout.stages), len(layout.tiers)
    out = rng.uniform(0.1, 5, (S, T, T))
    out[:, layout.shared, layout.shared] = 0.0
    flush = rng.uniform(0.1, 5, (S, T))
    flush[:, layout.shared] = 0.0
    for s in range(S):
        if layout.after[s]:
            flush[s] = 0.0
    return Costs(
        nodes, rng.uniform(1, 20, (S, T)), rng.uniform(1, 20, (S, T)), rng.uniform(1, 5, S), rng.uniform(0.1, 5, (S, T)), out, flush,
        np.ones(S, np.int64),
    )  # fmt: skip


def by_hand(tier: tuple[int, ...], layout: Layout, cost: Costs) -> float:
    """The analytic makespan of one configuration, every maximum recomputed from the sentences of the paper."""
    total = 0.0
    for level in range(max(layout.order) + 1):
        mine = [s for s in range(len(layout.stages)) if layout.order[s] == level]
        ins, runs, outs = [0.0], [0.0], [0.0]
        for s in mine:
            t = tier[s]
            shared_before = any(tier[p] == layout.shared for p in layout.before[s])
            if t != layout.shared and (layout.initial[s] or shared_before):
                ins.append(cost.stage_in[s][t])
            runs.append(cost.read[s][t] + cost.compute[s] + cost.write[s][t])
            successors = [o for o in range(len(layout.stages)) if s in layout.before[o]]
            outs.append(cost.flush[s][t] + sum(cost.stage_out[s][t][y] for y in {tier[o] for o in successors}))
        total += max(ins) + max(runs) + max(outs)
    return total


def every_tuple(layout: Layout) -> Configurations:
    """All configurations on one node, valid or not."""
    rows = list(itertools.product(range(len(layout.tiers)), repeat=len(layout.stages)))
    return Configurations(np.array(rows, np.int8), np.ones(len(rows), np.int64))


def plain_machine(nodes: int = 4, cores: int = 2) -> Machine:
    """100 B/s shared, 1,000 B/s on an SSD, 10,000 B/s in memory, for one task and for a node; no latencies."""
    shared = Tier("b", True, 100.0, 100.0, 100.0, 100.0, aggregate_read=300.0, aggregate_write=300.0)
    return Machine("plain", nodes, cores, 500.0, (
        shared, Tier("s", False, 1000.0, 1000.0, 1000.0, 1000.0), Tier("t", False, 10_000.0, 10_000.0, 10_000.0, 10_000.0),
    ))  # fmt: skip


def chain(sizes: list[float], seconds: list[float]) -> Workflow:
    """One task per stage: task n reads file n and writes file n + 1."""
    count = len(seconds)
    return Workflow.of(
        "chain", [f"k{n}" for n in range(count)], seconds, [1] * count, sizes, [-1, *range(count)], [[n] for n in range(count)],
        [[] for _ in range(count)],
    )  # fmt: skip


def wide_open(workflow: Workflow) -> Workflow:
    """The workflow with operations so large that read-ahead does not matter."""
    return replace(workflow, transfer=np.full(len(workflow.stages), float(1 << 20)))
