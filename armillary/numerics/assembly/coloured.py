"""Coloured: elements that share no node have one colour, and all of a colour are added at once without meeting.

Colours are given greedily, elements with many neighbours first, then evened out: an element of a crowded colour moves to the emptiest
one that no neighbour has. One launch for each colour; sums are in the order of colours whatever the number of workers. A node with many
elements needs as many colours, and each launch has little to do.

Komatitsch, Michea, Erlebacher: Porting a high-order finite-element earthquake modeling application to NVIDIA graphics cards using CUDA,
Journal of Parallel and Distributed Computing 69, 2009; greedy colouring by degree: Welsh and Powell, The Computer Journal 10, 1967.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numba import prange

from armillary.kernels import loop, parallel_loop
from armillary.parameters import parameter

from .assembling.strategy import Prepared, Problem, Strategy, structure
from .assembling.symbolic import Symbolic, add, adjacency
from .elements.element_matrices import rows, scratch

#: Elements of a colour below which one worker does them all: waking a second one costs more.
_ALONE = 64


@dataclass(frozen=True)
class Coloured(Strategy):
    """One launch for each colour of elements that share no node."""

    name = "coloured"

    balance: bool = parameter(True, "whether colours are balanced after the greedy colouring")

    def prepare(self, problem: Problem, symbolic: Symbolic | None = None) -> Prepared:
        found = structure(problem, symbolic)
        pattern = found.pattern
        colours = greedy_colours(problem.work.cells, pattern.node_ptr, pattern.node_elements, self.balance)
        order = np.argsort(colours, kind="stable")
        pointers = np.concatenate([[0], np.cumsum(np.bincount(colours))]).astype(np.int64)

        def numeric(coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            values = np.zeros(len(found.indices))
            _add_colours(problem.work._replace(coefficients=coefficients), pattern, order, pointers, numba.get_num_threads(), values)
            return values, found.indices, found.indptr

        return Prepared(numeric, {"colours": len(pointers) - 1})


def colour(cells: np.ndarray, nodes: int, balance: bool = True) -> np.ndarray:
    """Colours int64[elements] from 0 such that no two elements of a colour share a node."""
    return greedy_colours(cells, *adjacency(cells, nodes), balance)


def greedy_colours(cells: np.ndarray, node_ptr: np.ndarray, node_elements: np.ndarray, balance: bool) -> np.ndarray:
    """Colours of the elements; first fit in the order of falling degree (elements at the element's nodes)."""
    degrees = np.diff(node_ptr)[cells].sum(axis=1)
    order = np.argsort(-degrees, kind="stable")
    colours = _first_fit(cells, node_ptr, node_elements, order, int(degrees.max()))
    if balance:
        _even_out(cells, node_ptr, node_elements, colours, np.bincount(colours))
    return colours


@loop
def _first_fit(cells, node_ptr, node_elements, order, most):
    a = cells.shape[1]
    colours = np.full(cells.shape[0], -1, np.int64)
    taken = np.full(most + 1, -1, np.int64)
    for e in order:
        for b in range(a):
            i = cells[e, b]
            for k in range(node_ptr[i], node_ptr[i + 1]):
                c = colours[node_elements[k] // a]
                if c >= 0:
                    taken[c] = e
        free = 0
        while taken[free] == e:
            free += 1
        colours[e] = free
    return colours


@loop
def _even_out(cells, node_ptr, node_elements, colours, sizes):
    a, count = cells.shape[1], len(sizes)
    target = cells.shape[0] / count
    if count > 200:
        return  # Hundreds of colours come from one node; there is nothing to even out that would pay.
    taken = np.full(count, -1, np.int64)
    for e in range(cells.shape[0]):
        old = colours[e]
        if sizes[old] <= target:
            continue
        for b in range(a):
            i = cells[e, b]
            for k in range(node_ptr[i], node_ptr[i + 1]):
                taken[colours[node_elements[k] // a]] = e
        best = old
        for c in range(count):
            if taken[c] != e and sizes[c] < target and (best == old or sizes[c] < sizes[best]):
                best = c
        if best != old:
            colours[e] = best
            sizes[old] -= 1
            sizes[best] += 1


@loop(error_model="numpy")
def _add_some(work, pattern, order, first, last, values):
    a = work.cells.shape[1]
    gradient, volume, matrix = scratch(work)
    for k in range(first, last):
        rows(work, order[k], 0, a, gradient, volume, matrix)
        add(work, pattern, order[k], 0, a, matrix, values)


@parallel_loop(error_model="numpy")
def _add_one_colour(work, pattern, order, first, last, threads, values):
    for t in prange(threads):
        _add_some(work, pattern, order, first + t * (last - first) // threads, first + (t + 1) * (last - first) // threads, values)


@loop(error_model="numpy")
def _add_colours(work, pattern, order, pointers, threads, values):
    for c in range(len(pointers) - 1):
        if pointers[c + 1] - pointers[c] < _ALONE:
            _add_some(work, pattern, order, pointers[c], pointers[c + 1], values)
        else:
            _add_one_colour(work, pattern, order, pointers[c], pointers[c + 1], threads, values)
