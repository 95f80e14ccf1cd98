"""Explicit makes the sparse factor dense and does one full triangular solve and one full symmetric product; sparsity is not used.

This is the assembly on accelerators that `stepped` improves on: A massively parallel and memory-efficient FEM toolbox with a hybrid total
FETI solver with accelerator support, Int. J. High Perform. Comput. Appl. 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from armillary import arrays

from .complement.factor import Factor, Ordering
from .complement.method import Method, Work, mirrored, placed, zeros_like
from .complement.syrk import add_lower_product
from .complement.trsm import dense_factor


@dataclass(frozen=True)
class Plan:
    """The order of the unknowns, and how many right-hand sides there are."""

    ordering: Ordering
    sides: int


@dataclass(frozen=True)
class Explicit(Method):
    """Uses a dense factor, a full triangular solve and a full symmetric product."""

    def plan(self, ordering: Ordering, b: sparse.csr_array) -> Plan:
        return Plan(ordering, b.shape[0])

    def assemble(self, factor: Factor, b: sparse.csr_array, plan: Plan, like: arrays.Array) -> arrays.Array:
        x = placed(b, plan.ordering.position, np.arange(plan.sides), like)
        x = arrays.solve_triangular(dense_factor(factor.lower, like), x)
        if isinstance(like, np.ndarray):
            return arrays.syrk(x, trans="t")
        f = zeros_like(like, (plan.sides, plan.sides))
        add_lower_product(f, x)
        return mirrored(f)

    def work(self, plan: Plan) -> Work:
        n, m = plan.ordering.n, plan.sides
        return Work(n * n * m, n * m * (m + 1))
