"""What an instance would gain before anybody is routed over it, and which services touch each other."""

from __future__ import annotations

import numpy as np

from armillary.scheduling.provisioning.problem.problem import Problem

from .state import LEAST_GAIN, State

#: Nodes that are tried per service and estimate, because capacities make some estimates too good.
TRIES = 8


def services_that_share(p: Problem) -> list[set[int]]:
    """For each service, the services that occur with it in some chain, itself included."""
    out: list[set[int]] = [{m} for m in range(len(p.services))]
    for chain in {tuple(p.chain[a:b].tolist()) for a, b in zip(p.chain_start, p.chain_start[1:])}:
        for m in chain:
            out[m].update(chain)
    return out


def estimated(state: State, m: int, table: np.ndarray) -> dict[int, float]:
    """What one more instance of service m would gain on each node, where that is above zero; `table` is the state's `by_node` of it.

    If a node cannot carry everybody who would travel faster over it, the saving shrinks in proportion.
    """
    p = state.problem
    users = p.users_of[m]
    saved = np.maximum(0.0, state.ms[users, None] - table)
    wanted = ((saved > 0) * p.need[p.chain_start[users] + p.place_of[m], None]).sum(0)
    carried = np.minimum(1.0, state.spare / np.maximum(wanted, 1e-300))
    gains = state.per_ms * carried * (p.weight[users, None] * saved).sum(0) - state.per_price * p.price[m]
    return {k: float(gains[k]) for k in np.flatnonzero(gains > LEAST_GAIN).tolist() if state.fits(m, k)}
