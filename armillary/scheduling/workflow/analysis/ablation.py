"""What each part of QoSFlow brings: the same case with one part changed at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from armillary.scheduling.workflow.analytic import AnalyticModel
from armillary.scheduling.workflow.planning.ranker import Ranker
from armillary.scheduling.workflow.qosflow import QoSFlow
from armillary.scheduling.workflow.workload import WorkflowWork

from .measures import measures

VARIANTS: dict[str, Ranker] = {
    "qosflow": QoSFlow(),
    "no tree (analytic)": AnalyticModel(),
    "no pruning": QoSFlow(selection="unpruned"),
    "separation alone (pass_only)": QoSFlow(selection="pass_only"),
    "separation and error (weighted)": QoSFlow(selection="weighted"),
    "merged regions": QoSFlow(merge=True),
    "leaves of one": QoSFlow(min_leaf=1, max_depth=64, selection="unpruned"),
    "shallow (depth 3)": QoSFlow(max_depth=3),
    "deadlines with 10 % margin": QoSFlow(margin=0.10),
    "deadlines with 20 % margin": QoSFlow(margin=0.20),
}


def ablation(work: WorkflowWork, seed: int = 0) -> dict[str, dict[str, float]]:
    """Variant to its metrics on the work."""
    found = {}
    for name, technique in VARIANTS.items():
        values = measures(technique, replace(work), np.random.default_rng(seed)).values
        del values["build_s"]
        found[name] = values
    return found
