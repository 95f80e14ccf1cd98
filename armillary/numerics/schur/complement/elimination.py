"""Finds where a Cholesky factor can have entries, by its elimination tree and pattern, from the pattern of the matrix alone.

The role of elimination trees in sparse factorization, SIAM J. Matrix Anal. Appl. 1990.
"""

from __future__ import annotations

import numpy as np

from armillary.kernels import loop

Indices = np.ndarray


@loop
def parents(indptr, indices):
    """Returns the elimination tree of a symmetric pattern by columns: for each column the row of the factor's first entry below; −1 for a
    root.
    """
    n = len(indptr) - 1
    parent = np.full(n, -1, np.int64)
    ancestor = np.full(n, -1, np.int64)
    for k in range(n):
        for at in range(indptr[k], indptr[k + 1]):
            i = indices[at]
            while i != -1 and i < k:
                above = ancestor[i]
                ancestor[i] = k
                if above == -1:
                    parent[i] = k
                i = above
    return parent


@loop
def _row_entries(indptr, indices, parent, starts, rows):
    # Row k of the factor is the part of the tree that lies between the entries of row k of the matrix and k. With `rows` empty entries are
    # counted into `starts`, else they are written, so that each column comes sorted.
    n = len(parent)
    mark = np.full(n, -1, np.int64)
    for k in range(n):
        mark[k] = k
        for at in range(indptr[k], indptr[k + 1]):
            i = indices[at]
            while i < k and mark[i] != k:
                mark[i] = k
                if len(rows):
                    rows[starts[i]] = k
                starts[i] += 1
                i = parent[i]


@loop
def postorder(parent):
    """Orders columns so that every subtree of the elimination tree is contiguous with its root last; fill stays as it is."""
    n = len(parent)
    first_child, next_child = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    roots = -1
    for j in range(n - 1, -1, -1):
        up = parent[j]
        if up < 0:
            next_child[j], roots = roots, j
        else:
            next_child[j], first_child[up] = first_child[up], j
    order = np.empty(n, np.int64)
    stack = np.empty(n, np.int64)
    count = 0
    while roots >= 0:
        depth = 1
        stack[0] = roots
        roots = next_child[roots]
        while depth:
            j = stack[depth - 1]
            child = first_child[j]
            if child >= 0:
                first_child[j] = next_child[child]
                stack[depth] = child
                depth += 1
            else:
                order[count] = j
                count += 1
                depth -= 1
    return order


def factor_pattern(indptr: Indices, indices: Indices, parent: Indices) -> tuple[Indices, Indices]:
    """Returns compressed columns of the factor below its diagonal, rows sorted: every place that is not zero for some values."""
    counts = np.zeros(len(parent), np.int64)
    _row_entries(indptr, indices, parent, counts, np.empty(0, np.int64))
    bounds = np.concatenate(([0], np.cumsum(counts)))
    rows = np.empty(bounds[-1], np.int64)
    if len(rows):
        _row_entries(indptr, indices, parent, bounds[:-1].copy(), rows)
    return bounds, rows


@loop
def supernodes(parent, counts, least):
    """Returns first columns of groups of neighbouring columns with (nearly) one pattern: fundamental supernodes, small subtrees taken
    together.

    `counts` are entries below the diagonal; a subtree of at most `least` columns is one group. Ends with the number of columns.
    """
    n = len(parent)
    size = np.ones(n, np.int64)
    for j in range(n):
        if parent[j] >= 0:
            size[parent[j]] += size[j]
    # A column belongs to the largest subtree within `least` that holds it; subtrees are contiguous in a postorder, else in pieces.
    root = np.full(n, -1, np.int64)
    for j in range(n - 1, -1, -1):
        up = parent[j]
        if up >= 0 and root[up] >= 0:
            root[j] = root[up]
        elif size[j] <= least:
            root[j] = j
    starts = [0]
    for j in range(1, n):
        together = root[j] >= 0 and root[j] == root[j - 1]
        chained = root[j] < 0 and root[j - 1] < 0 and parent[j - 1] == j and counts[j - 1] == counts[j] + 1
        if not together and not chained:
            starts.append(j)
    starts.append(n)
    return np.array(starts)


@loop
def reached(parent, rows, indptr, group_of, groups):
    """Returns the groups of columns that the forward substitution of each right-hand side reaches, as compressed rows: (bounds, groups).

    `indptr`, `rows`: the entries of each right-hand side; `group_of` the group of each column.
    """
    sides = len(indptr) - 1
    bounds = np.zeros(sides + 1, np.int64)
    found = []
    seen = np.full(len(parent), -1, np.int64)
    taken = np.full(groups, -1, np.int64)
    for c in range(sides):
        for at in range(indptr[c], indptr[c + 1]):
            # Column by column: a group may hold pieces of several paths where the order is no postorder.
            j = rows[at]
            while j >= 0 and seen[j] != c:
                seen[j] = c
                group = group_of[j]
                if taken[group] != c:
                    taken[group] = c
                    found.append(group)
                j = parent[j]
        bounds[c + 1] = len(found)
    out = np.empty(len(found), np.int64)
    for i in range(len(found)):
        out[i] = found[i]
    return bounds, out
