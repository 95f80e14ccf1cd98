"""The symbolic phase finds, once for a mesh, which elements meet at a node, where the matrix has entries, and where each element's go.

A counting sort finds the elements at a node. The columns of a row are found by marking the nodes of its elements and sorting them; while
they are marked, the position of every local entry (e, a, b) is read off. All of it is on nodes: with m unknowns per node, an entry stands
for an m×m block, and row (i, r) of the matrix has its blocks side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from armillary.kernels import loop, parallel_loop


class Pattern(NamedTuple):
    """What the kernels read."""

    #: CSR of the nodes' graph, diagonal included, columns sorted.
    indptr: Any
    indices: Any
    #: Elements at node i: node_elements[node_ptr[i]:node_ptr[i + 1]] holds e·a + local number, in the order of elements.
    node_ptr: Any
    node_elements: Any
    #: int[elements, a, a]: the entry of `indices` for (e, a, b); no elements where it is searched for in the row.
    positions: Any


@dataclass(frozen=True)
class Symbolic:
    """A pattern and the CSR structure of the matrix with `dofs` unknowns per node."""

    pattern: Pattern
    dofs: int
    #: Rows and columns of the matrix, as SciPy takes them.
    indptr: np.ndarray
    indices: np.ndarray

    @property
    def nodes(self) -> int:
        """Nodes of the mesh."""
        return len(self.pattern.indptr) - 1

    @property
    def bytes(self) -> int:
        """Memory of the structure, the map included."""
        return sum(int(x.nbytes) for x in self.pattern) + int(self.indptr.nbytes + self.indices.nbytes) * (self.dofs > 1)


def adjacency(cells: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the elements at each node, as in `Pattern`."""
    return _adjacency(cells, nodes, np.empty(cells.size, _integer(cells.size)))


def symbolic(cells: np.ndarray, nodes: int, dofs: int = 1, map_bytes: int = 1 << 32) -> Symbolic:
    """Returns the structure of the matrix on int32[elements, a] cells; the map of positions is left out where it would pass `map_bytes`."""
    import numba

    chunks = numba.get_num_threads()
    node_ptr, node_elements = adjacency(cells, nodes)
    bounds = balanced(node_ptr, chunks)
    counts = np.zeros(nodes + 1, np.int64)
    _count_rows(cells, node_ptr, node_elements, bounds, counts)
    indptr = np.cumsum(counts)
    kind = _integer(int(indptr[-1]) * dofs * dofs)
    indptr, indices = indptr.astype(kind), np.empty(int(indptr[-1]), kind)
    a = cells.shape[1]
    mapped = cells.shape[0] * a * a * indptr.itemsize <= map_bytes
    positions = np.empty((cells.shape[0] if mapped else 0, a, a), kind)
    _fill_rows(cells, node_ptr, node_elements, bounds, indptr, indices, positions)
    pattern = Pattern(indptr, indices, node_ptr, node_elements, positions)
    if dofs == 1:
        return Symbolic(pattern, 1, indptr, indices)
    wide_ptr, wide = np.empty(nodes * dofs + 1, kind), np.empty(len(indices) * dofs * dofs, kind)
    _widen(indptr, indices, dofs, wide_ptr, wide)
    return Symbolic(pattern, dofs, wide_ptr, wide)


def restricted(whole: Symbolic, cells: np.ndarray, chosen: np.ndarray) -> Symbolic:
    """Returns the same matrix, as some of its elements see it: `cells` are those at int64[] `chosen`."""
    node_ptr, node_elements = adjacency(cells, whole.nodes)
    positions = whole.pattern.positions
    positions = positions[chosen] if len(positions) else positions
    pattern = whole.pattern._replace(node_ptr=node_ptr, node_elements=node_elements, positions=positions)
    return Symbolic(pattern, whole.dofs, whole.indptr, whole.indices)


def balanced(pointers: np.ndarray, chunks: int) -> np.ndarray:
    """Returns bounds int64[chunks + 1] of ranges of rows with about equal `pointers[i + 1] - pointers[i]` (and one for each row) in sum."""
    load = pointers.astype(np.int64) + np.arange(len(pointers))
    bounds = np.searchsorted(load, np.linspace(0, load[-1], chunks + 1))
    bounds[0], bounds[-1] = 0, len(pointers) - 1
    return bounds.astype(np.int64)


def _integer(most: int) -> Any:
    return np.int32 if most < 2**31 - 1 else np.int64


@loop
def _adjacency(cells, nodes, found):
    elements, a = cells.shape
    pointers = np.zeros(nodes + 1, found.dtype)
    for e in range(elements):
        for b in range(a):
            pointers[cells[e, b] + 1] += 1
    for i in range(nodes):
        pointers[i + 1] += pointers[i]
    at = pointers[:-1].copy()
    for e in range(elements):
        for b in range(a):
            i = cells[e, b]
            found[at[i]] = e * a + b
            at[i] += 1
    return pointers, found


@parallel_loop
def _count_rows(cells, node_ptr, node_elements, bounds, counts):
    a, nodes = cells.shape[1], len(node_ptr) - 1
    for chunk in prange(len(bounds) - 1):
        seen = np.full(nodes, -1, np.int32)
        for i in range(bounds[chunk], bounds[chunk + 1]):
            count = 0
            for k in range(node_ptr[i], node_ptr[i + 1]):
                e = node_elements[k] // a
                for b in range(a):
                    j = cells[e, b]
                    if seen[j] != i:
                        seen[j] = i
                        count += 1
            counts[i + 1] = count


@parallel_loop
def _fill_rows(cells, node_ptr, node_elements, bounds, indptr, indices, positions):
    a, nodes = cells.shape[1], len(node_ptr) - 1
    mapped = positions.shape[0] > 0
    for chunk in prange(len(bounds) - 1):
        # Invariant: place[j] >= indptr[i] exactly for the columns j of row i found so far, as rows come in order.
        place = np.full(nodes, -1, indptr.dtype)
        for i in range(bounds[chunk], bounds[chunk + 1]):
            start = indptr[i]
            end = start
            for k in range(node_ptr[i], node_ptr[i + 1]):
                e = node_elements[k] // a
                for b in range(a):
                    j = cells[e, b]
                    if place[j] < start:
                        place[j] = start
                        indices[end] = j
                        end += 1
            sort(indices[start:end])
            if mapped:
                for k in range(start, end):
                    place[indices[k]] = k
                for k in range(node_ptr[i], node_ptr[i + 1]):
                    e = node_elements[k] // a
                    own = node_elements[k] - e * a
                    for b in range(a):
                        positions[e, own, b] = place[cells[e, b]]


@loop
def sort(values):
    """Sorts in place, by insertion where there are few."""
    if len(values) > 48:
        values.sort()
        return
    for i in range(1, len(values)):
        x = values[i]
        k = i - 1
        while k >= 0 and values[k] > x:
            values[k + 1] = values[k]
            k -= 1
        values[k + 1] = x


@parallel_loop
def _widen(indptr, indices, dofs, wide_ptr, wide):
    wide_ptr[0] = 0
    for i in prange(len(indptr) - 1):
        start, length = indptr[i], indptr[i + 1] - indptr[i]
        for r in range(dofs):
            base = start * dofs * dofs + r * length * dofs
            wide_ptr[i * dofs + r + 1] = base + length * dofs
            for k in range(length):
                for c in range(dofs):
                    wide[base + k * dofs + c] = indices[start + k] * dofs + c


@loop
def find(indptr, indices, i, j):
    """Returns the position of column j in row i, by bisection."""
    low, high = indptr[i], indptr[i + 1] - 1
    while low < high:
        middle = (low + high) >> 1
        if indices[middle] < j:
            low = middle + 1
        else:
            high = middle
    return low


@loop
def add(work, pattern, e, first, last, matrix, values):
    """Adds rows of the local nodes first to last of element e's matrix to the matrix's values."""
    cells, m, indptr = work.cells, work.dofs, pattern.indptr
    mapped = pattern.positions.shape[0] > 0
    for a in range(first, last):
        i = cells[e, a]
        for b in range(cells.shape[1]):
            k = pattern.positions[e, a, b] if mapped else find(indptr, pattern.indices, i, cells[e, b])
            if m == 1:
                values[k] += matrix[a, b]
            else:
                start, length = indptr[i], indptr[i + 1] - indptr[i]
                base = start * m * m + (k - start) * m
                for r in range(m):
                    for c in range(m):
                        values[base + r * length * m + c] += matrix[a * m + r, b * m + c]
