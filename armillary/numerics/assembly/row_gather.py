"""In row-gather, every row belongs to one worker, who walks the elements at its node and computes their part of the row again.

Nothing is written twice, no two workers write to one place, and sums are in the order of elements whatever the number of workers. The price
is that an element's geometry is computed once for each of its nodes.

Cecka, Lew, Darve: Assembly of finite element methods on graphics processors, International Journal for Numerical Methods in Engineering
85, 2011.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numba import prange

from armillary.kernels import loop, parallel_loop

from .assembling.strategy import Prepared, Problem, Strategy, structure
from .assembling.symbolic import Symbolic, add, balanced
from .elements.element_matrices import rows, scratch


@dataclass(frozen=True)
class RowGather(Strategy):
    """Gives each row to one worker."""

    name = "row-gather"

    def prepare(self, problem: Problem, symbolic: Symbolic | None = None) -> Prepared:
        found = structure(problem, symbolic)
        bounds = balanced(found.pattern.node_ptr, 4 * numba.get_num_threads())

        def numeric(coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            values = np.empty(len(found.indices))
            _gather(problem.work._replace(coefficients=coefficients), found.pattern, bounds, values)
            return values, found.indices, found.indptr

        return Prepared(numeric, {"redundancy": problem.element.nodes})


@parallel_loop(error_model="numpy")
def _gather(work, pattern, bounds, values):
    for chunk in prange(len(bounds) - 1):
        _gather_some(work, pattern, bounds[chunk], bounds[chunk + 1], values)


@loop(error_model="numpy")
def _gather_some(work, pattern, first, last, values):
    a, block = work.cells.shape[1], work.dofs * work.dofs
    gradient, volume, matrix = scratch(work)
    for i in range(first, last):
        values[pattern.indptr[i] * block : pattern.indptr[i + 1] * block] = 0.0
        for k in range(pattern.node_ptr[i], pattern.node_ptr[i + 1]):
            e = pattern.node_elements[k] // a
            own = pattern.node_elements[k] - e * a
            rows(work, e, own, own + 1, gradient, volume, matrix)
            add(work, pattern, e, own, own + 1, matrix, values)
