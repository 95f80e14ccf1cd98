"""One call that plays a log under a policy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from armillary.errors import InputError
from armillary.scheduling.batch.workload import BatchWork, link_of, without_io
from armillary.scheduling.swf import Jobs

from .policy import Policy

if TYPE_CHECKING:
    import polars as pl

    from armillary.cluster import Cluster


def simulate(jobs: Jobs | BatchWork, cluster: Cluster | str | None, policy: Policy) -> pl.DataFrame:
    """When each job starts and ends under a policy: one row per job, in queue order.

    jobs: a log (`read_jobs`, `model_jobs`), or one with I/O (`with_io`, `tidal_io`). cluster: a description or a preset whose first group
    of nodes is the machine; None takes the size that the log names.
    """
    work = jobs if isinstance(jobs, BatchWork) else without_io(jobs)
    if cluster is not None:
        from armillary.cluster import find

        nodes, _ = link_of(find(cluster) if isinstance(cluster, str) else cluster)
        widest = int(work.jobs.nodes.max()) if len(work) else 0
        if widest > nodes:
            raise InputError(f"found a job of {widest} nodes; expected at most the cluster's {nodes}", where="cluster")
        work = replace(work, jobs=replace(work.jobs, machine_nodes=nodes))
    return policy.play(work).frame()
