"""In scatter, workers take elements and add their entries at mapped positions, where two may meet.

On a GPU the additions are atomic. A CPU has no atomic addition of floats in Numba, so every thread adds to values of its own, which are
summed at the end: the result is the same, at the cost of one copy of the values per thread. Sums depend on how elements fall to workers,
so they are equal to roundoff only, between runs on a GPU and between numbers of threads on a CPU.

Markall, Slemmer, Ham, Kelly, Cantwell, Sherwin: Finite element assembly strategies on multi-core and many-core architectures, International
Journal for Numerical Methods in Fluids 71, 2013 (the addto algorithm).
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numba import prange

from armillary.kernels import loop, parallel_loop

from .assembling.strategy import Prepared, Problem, Strategy, structure
from .assembling.symbolic import Symbolic, add
from .elements.element_matrices import rows, scratch


@dataclass(frozen=True)
class ScatterAtomic(Strategy):
    """Adds at mapped positions, with one copy of the values per thread."""

    name = "scatter-atomic"
    deterministic = False

    def prepare(self, problem: Problem, symbolic: Symbolic | None = None) -> Prepared:
        found = structure(problem, symbolic)

        def numeric(coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            values = np.empty((numba.get_num_threads(), len(found.indices)))
            _scatter(problem.work._replace(coefficients=coefficients), found.pattern, values)
            if len(values) > 1:
                _reduce(values)
            return values[0], found.indices, found.indptr

        return Prepared(numeric, {"copies": numba.get_num_threads()})


@parallel_loop(error_model="numpy")
def _scatter(work, pattern, values):
    elements, threads = work.cells.shape[0], values.shape[0]
    for t in prange(threads):
        _scatter_some(work, pattern, t * elements // threads, (t + 1) * elements // threads, values[t])


@loop(error_model="numpy")
def _scatter_some(work, pattern, first, last, values):
    gradient, volume, matrix = scratch(work)
    values[:] = 0.0
    for e in range(first, last):
        rows(work, e, 0, work.cells.shape[1], gradient, volume, matrix)
        add(work, pattern, e, 0, work.cells.shape[1], matrix, values)


@parallel_loop
def _reduce(values):
    threads, size = values.shape
    chunks = threads
    for chunk in prange(chunks):
        for t in range(1, threads):
            for k in range(chunk * size // chunks, (chunk + 1) * size // chunks):
                values[0, k] += values[t, k]
