"""The judge for a table of costs, which has seconds and no bytes: tasks and copies with these seconds, varied, and without barriers.

Every stage has its tasks, one task for each copy into its tier and one for each copy out of it. A task waits for the tasks whose data it
reads and for the copies that bring it, not for its level. Contention is what the table says, because there is nothing else to know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from armillary.errors import InputError
from armillary.scheduling.workflow.planning.configurations import Configurations, Layout
from armillary.scheduling.workflow.planning.costs import Costs
from armillary.scheduling.workflow.planning.makespan import fetches
from armillary.scheduling.workflow.stages.workflow import MOST_READS, Floats, Ints, Workflow
from armillary.scheduling.workflow.storage.tiers import Machine

from .judge import CV, noise
from .play import Player


def judge_costs(
    layout: Layout, costs: Sequence[Costs], configurations: Configurations, stream: Callable[[str], np.random.Generator],
    cores: int = 64, cv: float = CV,
) -> Floats:  # fmt: skip
    """Makespans in seconds of configurations of a table."""
    tasks, role = skeleton(layout)
    machine = replace(Machine.of("tiers-10"), nodes=max(cost.nodes for cost in costs), cores=cores)
    by_nodes = {cost.nodes: (cost, Player(tasks, machine, cost.nodes)) for cost in costs}
    found = np.empty(len(configurations))
    for n, (tier, nodes) in enumerate(zip(configurations.tier, configurations.nodes.tolist())):
        cost, player = by_nodes[nodes]
        seconds = _seconds(tier, layout, cost)[role]
        varied = seconds * noise(tasks.tasks, stream(f"{nodes}:{','.join(map(str, tier.tolist()))}"), cv)
        found[n] = player.play(np.zeros(len(tasks.stages), np.int64), varied).makespan
    return found


def _seconds(tier: np.ndarray, layout: Layout, cost: Costs) -> Floats:
    """Seconds of copying in, running and copying out, three per stage."""
    rows = tier[None, :]
    found = np.zeros(3 * len(layout.stages))
    for s in range(len(layout.stages)):
        t = int(tier[s])
        if t != layout.shared and fetches(s, rows, layout)[0]:
            found[3 * s] = cost.stage_in[s, t]
        found[3 * s + 1] = cost.read[s, t] + cost.compute[s] + cost.write[s, t]
        wanted = {int(tier[o]) for o in layout.after[s]}
        found[3 * s + 2] = cost.flush[s, t] + sum(cost.stage_out[s, t, to] for to in sorted(wanted))
    return found


def skeleton(layout: Layout) -> tuple[Workflow, Ints]:
    """Tasks of one second each, with the number of their seconds: 3 s for copying in, 3 s + 1 for a task, 3 s + 2 for copying out."""
    edges = sum(max(layout.tasks[p], layout.tasks[s]) for s in range(len(layout.stages)) for p in layout.before[s])
    if edges > MOST_READS:
        raise InputError(f"found {edges:,} edges between tasks; expected at most {MOST_READS:,}", where="order")
    kinds: list[str] = []
    parents: list[list[int]] = []
    role: list[int] = []
    first: dict[int, int] = {}
    copy_out: dict[int, int] = {}
    for s in sorted(range(len(layout.stages)), key=lambda s: layout.order[s]):
        kinds.append(f"in-{s}")
        parents.append([copy_out[p] for p in layout.before[s]])
        role.append(3 * s)
        copy_in = len(kinds) - 1
        first[s] = len(kinds)
        for n in range(layout.tasks[s]):
            kinds.append(f"run-{s}")
            mine = [copy_in]
            for p in layout.before[s]:
                mine += [first[p] + i for i in _sources(n, layout.tasks[s], layout.tasks[p])]
            parents.append(mine)
            role.append(3 * s + 1)
        kinds.append(f"out-{s}")
        parents.append(list(range(first[s], len(kinds) - 1)))
        role.append(3 * s + 2)
        copy_out[s] = len(kinds) - 1
    count = len(kinds)
    made = Workflow.of("costs", kinds, [1.0] * count, [1] * count, [], [], [[] for _ in kinds], parents, [str(r) for r in role])
    return made, np.array([int(name) for name in made.task_names], np.int64)


def _sources(n: int, tasks: int, before: int) -> range:
    """The producers of a consumer if both are dealt out in blocks."""
    return range(n * before // tasks, max(n * before // tasks + 1, (n + 1) * before // tasks))
