"""All transports on one workflow, beside the bound."""

from __future__ import annotations

from typing import Any

from armillary.cluster import Cluster

from .auto import Auto
from .workload import TransportWork, Workflow


def compare(workflow: Workflow, cluster: Cluster, *, lossy: bool = False, staleness: int = 1) -> list[dict[str, Any]]:
    """One row per transport and placement, fastest first, with the makespan in seconds and its ratio to that of a transport that costs
    nothing.
    """
    bound = workflow.simulate(cluster, "ideal").makespan
    rows = [choice.row() for choice in Auto(lossy=lossy, staleness=staleness).search(TransportWork(workflow, cluster))]
    return [{**row, "over_ideal": row["makespan"] / bound if bound else float("inf")} for row in rows]
