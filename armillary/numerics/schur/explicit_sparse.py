"""Explicit-sparse does a sparse direct solve for every column of Bᵀ, then B times the solutions, as a user of a sparse solver would.

SuperLU's supernodal solves with several right-hand sides: A supernodal approach to sparse partial pivoting, 1999.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from armillary import arrays
from armillary.parameters import parameter

from .complement.factor import Factor, Ordering
from .complement.method import Method, Work, moved


@dataclass(frozen=True)
class Plan:
    """The order of the unknowns, and entries and rows of B."""

    ordering: Ordering
    sides: int
    entries: int


@dataclass(frozen=True)
class ExplicitSparse(Method):
    """Computes K⁻¹Bᵀ by sparse solves on the host, then B times it."""

    on_device = False

    batch: int = parameter(
        256, "the number of right-hand sides that are solved together, which takes memory of n×batch", range=(1, 1_000_000)
    )

    def plan(self, ordering: Ordering, b: sparse.csr_array) -> Plan:
        return Plan(ordering, b.shape[0], b.nnz)

    def assemble(self, factor: Factor, b: sparse.csr_array, plan: Plan, like: arrays.Array) -> arrays.Array:
        f = np.empty((plan.sides, plan.sides))
        for start in range(0, plan.sides, self.batch):
            end = min(start + self.batch, plan.sides)
            f[:, start:end] = b @ factor.solve(b[start:end].toarray().T)
        return moved((f + f.T) / 2, like)

    def work(self, plan: Plan) -> Work:
        # Forward and backward take two operations per entry and one for the diagonal; then each entry of B is used once per column.
        below = plan.ordering.entries - plan.ordering.n
        return Work(2 * (2 * below + plan.ordering.n) * plan.sides, 2 * plan.entries * plan.sides)
