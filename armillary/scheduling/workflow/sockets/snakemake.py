"""A configuration as a Snakemake profile: default resources, and tier, nodes and local disk per rule."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from armillary.scheduling.workflow.planning.capacity import stage_bytes

if TYPE_CHECKING:
    from armillary.scheduling.workflow.regions.fitted import Configuration, Fitted


def profile_of(fitted: Fitted, configuration: Configuration) -> str:
    """The text of a `config.yaml`: `default-resources` and `set-resources` by rule, for rules that are named like the stages.

    `tier` is the storage tier, `nodes` the number of nodes, and `disk_mb` what each node keeps on a local tier, in mebibytes. Names are
    written as JSON strings, which are YAML strings too.
    """
    layout = fitted.layout
    n = fitted.number(configuration)
    nodes = int(fitted.found.configurations.nodes[n])
    statistics = fitted.planning.statistics
    kept = stage_bytes(statistics, nodes) if statistics is not None else np.zeros(len(layout.stages))
    shared = json.dumps(layout.tiers[layout.shared])
    lines = ["default-resources:", f"  nodes: {nodes}", f"  tier: {shared}", "set-resources:"]
    for s, stage in enumerate(layout.stages):
        tier = int(fitted.found.configurations.tier[n, s])
        lines += [f"  {json.dumps(stage)}:", f"    tier: {json.dumps(layout.tiers[tier])}", f"    nodes: {min(nodes, layout.tasks[s])}"]
        if tier != layout.shared:
            lines.append(f"    disk_mb: {max(1, int(np.ceil(kept[s] / (1 << 20))))}")
    return "\n".join(lines) + "\n"
