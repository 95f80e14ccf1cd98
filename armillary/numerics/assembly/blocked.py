"""Blocked assembly gives each compact part of the mesh a small buffer, and merges only what lies between parts.

Recursive bisection along the longest coordinate gives parts of about 4,096 elements. A part adds to a dense buffer of just its own entries,
which stays in the cache however nodes are numbered. Entries of rows whose elements are all in the part are then copied to the matrix; those
of rows that parts share go to a list and are summed in the order of parts in a second pass. Nothing is written by two workers, and sums
are the same whatever their number.

Our design after partition-wise assembly with shared memory: Cecka, Lew, Darve: Assembly of finite element methods on graphics processors,
International Journal for Numerical Methods in Engineering 85, 2011; bisection: Berger and Bokhari, IEEE Transactions on Computers 36, 1987.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import prange

from armillary.kernels import loop, parallel_loop
from armillary.parameters import parameter

from .assembling.strategy import Prepared, Problem, Strategy, structure
from .assembling.symbolic import Symbolic, find
from .elements.element_matrices import rows, scratch


class _Parts(NamedTuple):
    #: Elements by part: order[part_ptr[p]:part_ptr[p + 1]].
    order: Any
    part_ptr: Any
    #: int32[elements, a, a] in that order: the place of (a, b) in the part's buffer.
    places: Any
    #: For each place, its entry of the pattern where the part owns the row, else -1 - its place in the shared list.
    entry_ptr: Any
    entries: Any
    #: Row of each entry of the pattern, for matrices with several unknowns per node.
    entry_rows: Any
    #: Shared entries of the pattern, and where in the shared list their terms stand, part after part.
    shared: Any
    shared_ptr: Any
    shared_terms: Any


@dataclass(frozen=True)
class Blocked(Strategy):
    """Assembles parts in buffers of their own and merges the shared rows."""

    name = "blocked"

    part_elements: int = parameter(4096, "the approximate number of elements per part", range=(16, 1_000_000))

    def prepare(self, problem: Problem, symbolic: Symbolic | None = None) -> Prepared:
        found = structure(problem, symbolic)
        work, pattern = problem.work, found.pattern
        centres = work.points[:, work.cells].mean(axis=2)
        order, part_ptr = bisected(centres, self.part_elements)
        parts = _partition(work.cells, pattern, order, part_ptr)
        longest = int(np.diff(parts.entry_ptr).max())

        def numeric(coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            # The values start as zeros, because a part of the mesh may leave entries of the whole pattern alone.
            values = np.zeros(len(found.indices))
            block = work.dofs * work.dofs
            terms = np.empty(len(parts.shared_terms) * block)
            now = work._replace(coefficients=coefficients)
            _add_parts(now, pattern, parts, longest * block, numba.get_num_threads(), terms, values)
            _merge(pattern.indptr, parts, work.dofs, terms, values)
            return values, found.indices, found.indptr

        share = len(parts.shared) / max(1, len(pattern.indices))
        return Prepared(numeric, {"parts": len(part_ptr) - 1, "shared": share})


def bisected(centres: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns elements by part, int64[elements] and bounds: halved along the longest side of their box until at most 1.5·`most` are left.

    `centres` is float64[d, elements].
    """
    done, waiting = [], [np.arange(centres.shape[1])]
    while waiting:
        part = waiting.pop()
        if len(part) <= 1.5 * most:
            done.append(np.sort(part))
            continue
        own = centres[:, part]
        axis = int(np.argmax(np.ptp(own, axis=1)))
        middle = len(part) // 2
        split = np.argpartition(own[axis], middle)
        waiting += [part[split[middle:]], part[split[:middle]]]
    return np.concatenate(done), np.concatenate([[0], np.cumsum([len(part) for part in done])]).astype(np.int64)


def _partition(cells: np.ndarray, pattern: Any, order: np.ndarray, part_ptr: np.ndarray) -> _Parts:
    owner = _owners(cells, order, part_ptr, len(pattern.indptr) - 1)
    a = cells.shape[1]
    places = np.empty((len(cells), a, a), np.int32)
    chunks = numba.get_num_threads()
    counts = np.zeros(len(part_ptr), np.int64)
    # A part's entries are at most those of its elements; the list is cut to size afterwards.
    found = np.empty(len(cells) * a * a, pattern.indices.dtype)
    _touch(cells, pattern, order, part_ptr, chunks, places, counts, found)
    starts = part_ptr * a * a
    entry_ptr = np.cumsum(counts)
    entries = np.concatenate([found[starts[p] : starts[p] + counts[p + 1]] for p in range(len(part_ptr) - 1)]).astype(np.int64)
    entry_rows = np.repeat(np.arange(len(pattern.indptr) - 1, dtype=np.int32), np.diff(pattern.indptr))
    shared_at = np.flatnonzero(owner[entry_rows[entries]] < 0)
    by_entry = np.argsort(entries[shared_at], kind="stable")
    shared, first = np.unique(entries[shared_at][by_entry], return_index=True)
    shared_ptr = np.concatenate([first, [len(by_entry)]]).astype(np.int64)
    entries[shared_at] = -1 - np.arange(len(shared_at))
    return _Parts(order, part_ptr, places, entry_ptr, entries, entry_rows, shared, shared_ptr, by_entry)


@loop
def _owners(cells, order, part_ptr, nodes):
    """Returns the part that has all elements of a node, -1 where several parts have some, -2 where none has any."""
    owner = np.full(nodes, -2, np.int64)
    for p in range(len(part_ptr) - 1):
        for k in range(part_ptr[p], part_ptr[p + 1]):
            for a in range(cells.shape[1]):
                i = cells[order[k], a]
                if owner[i] == -2:
                    owner[i] = p
                elif owner[i] != p:
                    owner[i] = -1
    return owner


@parallel_loop
def _touch(cells, pattern, order, part_ptr, chunks, places, counts, found):
    a, parts = cells.shape[1], len(part_ptr) - 1
    mapped = pattern.positions.shape[0] > 0
    for chunk in prange(chunks):
        part_of = np.full(len(pattern.indices), -1, np.int32)
        place_of = np.empty(len(pattern.indices), np.int32)
        for p in range(chunk * parts // chunks, (chunk + 1) * parts // chunks):
            start, count = part_ptr[p] * a * a, 0
            for k in range(part_ptr[p], part_ptr[p + 1]):
                e = order[k]
                for b in range(a):
                    for c in range(a):
                        at = pattern.positions[e, b, c] if mapped else find(pattern.indptr, pattern.indices, cells[e, b], cells[e, c])
                        if part_of[at] != p:
                            part_of[at] = p
                            place_of[at] = count
                            found[start + count] = at
                            count += 1
                        places[k, b, c] = place_of[at]
            counts[p + 1] = count


@parallel_loop(error_model="numpy")
def _add_parts(work, pattern, parts, longest, chunks, terms, values):
    count = len(parts.part_ptr) - 1
    for chunk in prange(chunks):
        _add_some_parts(work, pattern.indptr, parts, longest, chunk * count // chunks, (chunk + 1) * count // chunks, terms, values)


@loop(error_model="numpy")
def _add_some_parts(work, indptr, parts, longest, first_part, last_part, terms, values):
    a, m = work.cells.shape[1], work.dofs
    gradient, volume, matrix = scratch(work)
    buffer = np.empty(longest)
    for p in range(first_part, last_part):
        first, size = parts.entry_ptr[p], parts.entry_ptr[p + 1] - parts.entry_ptr[p]
        buffer[: size * m * m] = 0.0
        for k in range(parts.part_ptr[p], parts.part_ptr[p + 1]):
            rows(work, parts.order[k], 0, a, gradient, volume, matrix)
            for b in range(a):
                for c in range(a):
                    at = parts.places[k, b, c] * m * m
                    if m == 1:
                        buffer[at] += matrix[b, c]
                    else:
                        for r in range(m):
                            for s in range(m):
                                buffer[at + r * m + s] += matrix[b * m + r, c * m + s]
        for k in range(size):
            entry = parts.entries[first + k]
            if entry < 0:
                at = (-1 - entry) * m * m
                for r in range(m * m):
                    terms[at + r] = buffer[k * m * m + r]
            elif m == 1:
                values[entry] = buffer[k]
            else:
                i = parts.entry_rows[entry]
                start, length = indptr[i], indptr[i + 1] - indptr[i]
                for r in range(m):
                    for s in range(m):
                        values[start * m * m + r * length * m + (entry - start) * m + s] = buffer[(k * m + r) * m + s]


@parallel_loop
def _merge(indptr, parts, m, terms, values):
    for k in prange(len(parts.shared)):
        entry = parts.shared[k]
        i = parts.entry_rows[entry]
        start, length = indptr[i], indptr[i + 1] - indptr[i]
        for r in range(m):
            for s in range(m):
                total = 0.0
                for t in range(parts.shared_ptr[k], parts.shared_ptr[k + 1]):
                    total += terms[(parts.shared_terms[t] * m + r) * m + s]
                values[start * m * m + r * length * m + (entry - start) * m + s] = total
