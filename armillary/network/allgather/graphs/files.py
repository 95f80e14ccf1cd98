"""Graphs and matrices from files: Matrix Market, edges as a table, and compressed rows in an `.npz`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.errors import InputError
from armillary.files import Column, check_archive, read_arrays, read_table
from armillary.files.matrices import read_sparse

from .built_in import Matrix, of_matrix
from .neighbours import MOST_EDGES, MOST_RANKS, Neighbours, from_edges

#: The most rows of a matrix.
MOST_ROWS = 50_000_000


def read_graph(path: Path, ranks: int) -> tuple[Neighbours, Matrix | None]:
    """The graph in a file, and the matrix that it comes from if it is one.

    `.mtx`: a square matrix whose rows are dealt to `ranks` ranks in blocks. A table with the columns `source`, `destination`, or an `.npz`
    with `indptr` and `indices` (row i lists the destinations of rank i), names ranks; `ranks` = 0 takes as many as it names.
    """
    name = path.name.lower()
    if name.endswith((".mtx", ".mtx.gz")):
        return _matrix(path, ranks)
    if name.endswith(".npz"):
        if {"row", "format"} & check_archive(path):
            return _matrix(path, ranks)
        return _compressed(path, ranks), None
    table = read_table(
        path, (Column("source", "int", least=0, most=MOST_RANKS - 1), Column("destination", "int", least=0, most=MOST_RANKS - 1)),
        limit=MOST_EDGES,
    )  # fmt: skip
    give, take = table["source"], table["destination"]
    named = int(max(give.max(initial=-1), take.max(initial=-1))) + 1
    if ranks and named > ranks:
        row = int(np.argmax(np.maximum(give, take) >= ranks))
        what = "source" if give[row] >= ranks else "destination"
        raise table.error(row, f"found {max(int(give[row]), int(take[row]))}; expected a rank below {ranks} (--ranks)", what)
    return from_edges(ranks or named, give, take), None


def _matrix(path: Path, ranks: int) -> tuple[Neighbours, Matrix]:
    found = read_sparse(path, finite=False)
    rows, columns = (int(n) for n in found.shape)
    if rows != columns:
        raise InputError(f"found {rows} rows and {columns} columns; expected a square matrix", where=str(path))
    if not 1 <= rows <= MOST_ROWS:
        raise InputError(f"found {rows} rows; expected 1 to {MOST_ROWS}", where=str(path))
    ranks = ranks or min(64, rows)
    if ranks > rows:
        raise InputError(f"found {ranks} ranks for {rows} rows; expected at most one rank per row", where="--ranks")
    row, column = (np.asarray(axis, np.int64) for axis in found.coords)
    matrix = Matrix(row, column, rows)
    return of_matrix(matrix, ranks), matrix


def _compressed(path: Path, ranks: int) -> Neighbours:
    arrays = read_arrays(path, ("indptr", "indices"))
    begin, to = arrays["indptr"], arrays["indices"]
    where = str(path)
    for name, row in (("indptr", begin), ("indices", to)):
        if row.ndim != 1 or row.dtype.kind not in "iu":
            raise InputError(f"{name}: found {row.dtype} of {row.ndim} dimensions; expected whole numbers of one", where=where)
    named = len(begin) - 1
    if not 1 <= named <= MOST_RANKS or len(to) > MOST_EDGES:
        raise InputError(f"found {named} rows and {len(to)} edges; expected 1 to {MOST_RANKS} and at most {MOST_EDGES}", where=where)
    if ranks and named != ranks:
        raise InputError(f"indptr: found {named} rows; expected {ranks} (--ranks)", where=where)
    # Compared pairwise rather than by differences, which could overflow.
    if begin[0] != 0 or begin[-1] != len(to) or np.any(begin[1:] < begin[:-1]):
        raise InputError(f"indptr: expected numbers from 0 to {len(to)} that do not decrease", where=where)
    outside = (to < 0) | (to >= named)
    if outside.any():
        at = int(np.argmax(outside))
        raise InputError(f"indices: found {to[at]} at {at}; expected ranks from 0 to {named - 1}", where=where)
    give = np.repeat(np.arange(named), np.diff(begin.astype(np.int64)))
    return from_edges(named, give, to.astype(np.int64))
