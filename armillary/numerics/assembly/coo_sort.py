"""COO-sort writes every entry as (row, column, value), sorts by (row, column) and sums equal neighbours.

No structure is kept between assemblies and none is needed, so where the mesh changes every time nothing else has so little to prepare.
The sort is by digits that are as large as they can be: one counting pass puts triplets into their rows, and in each row another one puts
them into its columns and sums them there. Both keep the order of elements, so that sums do not depend on the number of workers.

Bell, Dalton, Olson: Exposing fine-grained parallelism in algebraic multigrid methods, SIAM Journal on Scientific Computing 34, 2012
(assembly from triplets); the sort by digits: Cormen, Leiserson, Rivest, Stein: Introduction to Algorithms, 2001.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numba import prange

from armillary.kernels import loop, parallel_loop

from .assembling.strategy import Prepared, Problem, Strategy
from .assembling.symbolic import Symbolic, balanced, sort
from .elements.element_matrices import rows, scratch


@dataclass(frozen=True)
class CooSort(Strategy):
    """Sorts triplets by row and column and sums equal ones; the structure is found anew every time."""

    name = "coo-sort"
    symbolic = False

    def prepare(self, problem: Problem, symbolic: Symbolic | None = None) -> Prepared:
        size = problem.nodes * problem.work.dofs

        def numeric(coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            work = problem.work._replace(coefficients=coefficients)
            count = problem.elements * (problem.element.nodes * work.dofs) ** 2
            row, column, value = np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count)
            _triplets(work, numba.get_num_threads(), row, column, value)
            return summed(row, column, value, size)

        return Prepared(numeric, {})


def summed(row: np.ndarray, column: np.ndarray, value: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns CSR (data, indices, indptr) of triplets int32[], int32[], float64[]; equal places are summed in their order.

    Columns are sorted.
    """
    threads = numba.get_num_threads()
    by_row, columns, values = _into_rows(row, column, value, size, threads, np.empty_like(column), np.empty_like(value))
    bounds = balanced(by_row, threads)
    lengths = np.zeros(size + 1, np.int64)
    _into_columns(by_row, columns, values, bounds, size, lengths)
    indptr = np.cumsum(lengths)
    kind = np.int32 if indptr[-1] < 2**31 - 1 else np.int64
    indptr, data, indices = indptr.astype(kind), np.empty(indptr[-1]), np.empty(indptr[-1], kind)
    _close_up(by_row, columns, values, indptr, bounds, data, indices)
    return data, indices, indptr


@parallel_loop(error_model="numpy")
def _triplets(work, chunks, row, column, value):
    elements = work.cells.shape[0]
    for chunk in prange(chunks):
        _some_triplets(work, chunk * elements // chunks, (chunk + 1) * elements // chunks, row, column, value)


@loop(error_model="numpy")
def _some_triplets(work, first, last, row, column, value):
    a, m = work.cells.shape[1], work.dofs
    gradient, volume, matrix = scratch(work)
    k = first * a * a * m * m
    for e in range(first, last):
        rows(work, e, 0, a, gradient, volume, matrix)
        for i in range(a):
            for r in range(m):
                for j in range(a):
                    for c in range(m):
                        row[k] = work.cells[e, i] * m + r
                        column[k] = work.cells[e, j] * m + c
                        value[k] = matrix[i * m + r, j * m + c]
                        k += 1


@parallel_loop
def _into_rows(row, column, value, size, chunks, columns, values):
    """Sorts triplets by row, stably; returns where rows begin, columns and values."""
    count = len(row)
    at = np.zeros((chunks, size), np.int64)
    for chunk in prange(chunks):
        own = at[chunk]
        for k in range(chunk * count // chunks, (chunk + 1) * count // chunks):
            own[row[k]] += 1
    begin = np.empty(size + 1, np.int64)
    total = 0
    for i in range(size):
        begin[i] = total
        for chunk in range(chunks):
            here = at[chunk, i]
            at[chunk, i] = total
            total += here
    begin[size] = total
    for chunk in prange(chunks):
        own = at[chunk]
        for k in range(chunk * count // chunks, (chunk + 1) * count // chunks):
            i = row[k]
            columns[own[i]] = column[k]
            values[own[i]] = value[k]
            own[i] += 1
    return begin, columns, values


@parallel_loop
def _into_columns(begin, columns, values, bounds, size, lengths):
    for chunk in prange(len(bounds) - 1):
        _sum_rows(begin, columns, values, bounds[chunk], bounds[chunk + 1], size, lengths)


@loop
def _sum_rows(begin, columns, values, first, last, size, lengths):
    """Leaves the different columns of each row, sorted, and their sums at its beginning."""
    # Invariant: sums[j] belongs to row i exactly where owner[j] == i.
    owner, sums = np.full(size, -1, np.int32), np.empty(size)
    for i in range(first, last):
        start = begin[i]
        end = start
        for k in range(start, begin[i + 1]):
            j = columns[k]
            if owner[j] != i:
                owner[j] = i
                sums[j] = values[k]
                columns[end] = j
                end += 1
            else:
                sums[j] += values[k]
        sort(columns[start:end])
        for k in range(start, end):
            values[k] = sums[columns[k]]
        lengths[i + 1] = end - start


@parallel_loop
def _close_up(begin, columns, values, indptr, bounds, data, indices):
    for chunk in prange(len(bounds) - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for k in range(indptr[i + 1] - indptr[i]):
                data[indptr[i] + k] = values[begin[i] + k]
                indices[indptr[i] + k] = columns[begin[i] + k]
