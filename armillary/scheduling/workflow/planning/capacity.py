"""How many bytes per node a configuration keeps on local tiers, from the workflow's own file sizes (our design).

A stage on a local tier keeps there what each node needs of its inputs and what its tasks write. Files are not removed before the end.
"""

from __future__ import annotations

import numpy as np

from armillary.scheduling.workflow.stages.statistics import Statistics
from armillary.scheduling.workflow.stages.workflow import Floats
from armillary.scheduling.workflow.storage.tiers import Machine

from .configurations import Configurations, Layout
from .costs import tasks_per_node


def stage_bytes(statistics: Statistics, nodes: int) -> Floats:
    """Bytes per node that each stage keeps on its tier."""
    found = []
    for stage in statistics.stages:
        active = max(1, min(nodes, stage.tasks))
        flows = [*stage.reads.values(), *([stage.initial] if stage.initial else [])]
        needed = sum(max(flow.read, flow.distinct / active) for flow in flows)
        written = max(stage.writes.values(), default=0.0) + stage.final
        found.append(needed + written * tasks_per_node(stage.tasks, nodes))
    return np.array(found)


def bytes_on(configurations: Configurations, layout: Layout, statistics: Statistics) -> Floats:
    """Bytes per node on each tier, as an array by [configuration, tier]; zero for the shared tier."""
    found = np.zeros((len(configurations), len(layout.tiers)))
    for nodes in np.unique(configurations.nodes).tolist():
        rows = np.flatnonzero(configurations.nodes == nodes)
        size = stage_bytes(statistics, nodes)
        for t in range(len(layout.tiers)):
            if t != layout.shared:
                for s in range(len(layout.stages)):
                    found[rows, t] += np.where(configurations.tier[rows, s] == t, size[s], 0.0)
    return found


def fitting(configurations: Configurations, layout: Layout, statistics: Statistics, machine: Machine) -> Configurations:
    """The configurations whose files fit on every local tier."""
    most = np.array([tier.capacity for tier in machine.tiers])
    fits = np.asarray((bytes_on(configurations, layout, statistics) <= most).all(1), bool)
    return configurations.at(fits)
