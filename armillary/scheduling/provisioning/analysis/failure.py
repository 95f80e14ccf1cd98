"""A node fails: only the services that ran there are placed again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from armillary.scheduling.provisioning.planning.moves import search
from armillary.scheduling.provisioning.planning.state import State
from armillary.scheduling.provisioning.problem.plan import Plan
from armillary.scheduling.provisioning.problem.problem import Problem


def after_failure(plan: Plan, node: str) -> Plan:
    """The plan after the server of a node has failed; its links still forward, and requests still enter there.

    Everybody else's path stays. The stranded users get new paths, instances are opened where they have none, and the local search looks
    only at the services that the node held. The plan's users must have one path each.
    """
    p = plan.problem
    k = p.nodes.index(node)
    failed = without_server(p, k)
    lost = set(np.flatnonzero(plan.placed[:, k]).tolist())
    placed = plan.placed.copy()
    placed[:, k] = False
    state = State(failed, placed)
    whole = ~(plan.path == k).any(1)
    state.resume(plan.user[whole], plan.path[whole])
    state.repair()
    search(state, services=lost)
    return state.plan()


def without_server(p: Problem, k: int) -> Problem:
    """The problem with a node that can hold and carry nothing; costs and latencies are divided by the same scale as before."""
    storage, cores = p.storage.copy(), p.cores.copy()
    storage[k], cores[k] = 0.0, 1e-12
    out = replace(p, storage=storage, cores=cores)
    out.__dict__["reference"] = p.reference
    return out
