"""ILP: the least possible maximum, by a mixed-integer program, for a few dozen blocks.

    minimise m   so that   Σ_r x_br = 1 for each block b,   Σ_b cost_b·x_br ≤ m for each rank r,   x binary

HiGHS solves it to a relative gap, or to the best that a number of nodes gives; there is no limit on time. Ranks are interchangeable, so
block b may only go to ranks 0 to b.

The solver: Parallelizing the dual revised simplex method (HiGHS), Mathematical Programming Computation 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import NotForThisCase
from armillary.parameters import parameter

from .lpt import lpt
from .octree.mesh import Floats, Ints
from .placement.policy import Policy, State, checked, loads

MOST_BLOCKS, MOST_RANKS = 64, 16


def exact(costs: Floats, ranks: int, gap: float = 0.0, nodes: int = 1_000_000) -> Ints:
    """The rank of each block; the largest load is at most 1 + gap times the least possible one, unless HiGHS needs more nodes."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array, vstack

    n = len(costs)
    greedy = lpt(costs, ranks)
    bound = max(costs.sum() / ranks, costs.max())
    if loads(costs, greedy, ranks).max() <= (1 + gap) * bound:
        return greedy
    order = np.argsort(-costs, kind="stable")
    scaled = costs[order] / bound
    block, rank = (grid.ravel() for grid in np.meshgrid(np.arange(n), np.arange(ranks), indexing="ij"))
    column = np.arange(n * ranks)
    width = n * ranks + 1
    once = coo_array((np.ones(n * ranks), (block, column)), shape=(n, width))
    load = coo_array((scaled[block], (rank, column)), shape=(ranks, width))
    most = coo_array((-np.ones(ranks), (np.arange(ranks), np.full(ranks, n * ranks))), shape=(ranks, width))
    upper = np.append((rank <= block).astype(float), loads(costs, greedy, ranks).max() / bound)
    lower = np.append(np.zeros(n * ranks), 1.0)
    found = milp(
        np.append(np.zeros(n * ranks), 1.0), integrality=np.append(np.ones(n * ranks), 0), bounds=Bounds(lower, upper),
        constraints=LinearConstraint(vstack([once, load + most]).tocsr(), np.append(np.ones(n), np.full(ranks, -np.inf)),
                                     np.append(np.ones(n), np.zeros(ranks))),
        options={"mip_rel_gap": gap, "node_limit": nodes},
    )  # fmt: skip
    if found.x is None:
        return greedy
    placement = np.empty(n, np.int64)
    placement[order] = found.x[:-1].reshape(n, ranks).argmax(1)
    return placement if loads(costs, placement, ranks).max() < loads(costs, greedy, ranks).max() else greedy


@dataclass(frozen=True)
class Ilp(Policy):
    """The least possible maximum, for at most 64 blocks on 16 ranks."""

    gap: float = parameter(0.02, "relative gap at which HiGHS stops", range=(0, 1))

    nodes: int = parameter(2000, "nodes of the search tree after which HiGHS stops", range=(1, 1_000_000_000))

    takes = frozenset({"exact"})

    def place(self, state: State) -> Ints:
        """The rank of each block."""
        costs = checked(state.costs, state.ranks)
        if len(costs) > MOST_BLOCKS or state.ranks > MOST_RANKS:
            raise NotForThisCase(f"takes at most {MOST_BLOCKS} blocks on {MOST_RANKS} ranks")
        return exact(costs, state.ranks, self.gap, self.nodes)
