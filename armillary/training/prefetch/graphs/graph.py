"""An undirected graph in compressed sparse rows, proved before a compiled loop follows an index of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

Ints = npt.NDArray[np.int64]
Vertices = npt.NDArray[np.int32]

#: Vertices are 32-bit numbers, and arrays of this length fit everywhere.
MOST_VERTICES = 1 << 24
MOST_EDGES = 1 << 27


@dataclass(frozen=True)
class Graph:
    """The neighbours of vertex v are `indices[indptr[v]:indptr[v + 1]]`, ascending; every edge stands there in both directions."""

    #: (vertices + 1,)
    indptr: Ints
    #: (2 × edges,)
    indices: Vertices

    @property
    def vertices(self) -> int:
        """The number of vertices."""
        return len(self.indptr) - 1

    @property
    def edges(self) -> int:
        """The number of undirected edges."""
        return len(self.indices) // 2

    @property
    def degree(self) -> Ints:
        """The number of neighbours of each vertex."""
        return np.diff(self.indptr)

    @staticmethod
    def of(source: npt.ArrayLike, target: npt.ArrayLike, vertices: int | None = None, *, where: str | None = None) -> Graph:
        """The graph with these edges in any direction; repeated edges count once, and loops are left out."""
        from scipy.sparse import coo_array

        u, v = (np.asarray(side) for side in (source, target))
        for side in (u, v):
            if side.ndim != 1 or len(side) != len(u) or (len(side) and side.dtype.kind not in "iu"):
                raise InputError("found edges that are not two equally long lists of whole numbers", where=where)
        if len(u) > MOST_EDGES:
            raise InputError(f"found {len(u):,} edges; expected at most {MOST_EDGES:,}", where=where)
        largest = int(max(u.max(), v.max())) if len(u) else -1
        n = largest + 1 if vertices is None else vertices
        if len(u) and int(min(u.min(), v.min())) < 0:
            raise InputError("found a negative vertex; expected numbers from 0", where=where)
        if not 0 < n <= MOST_VERTICES or largest >= n:
            raise InputError(f"found vertex {largest} and {n} vertices; expected at most {MOST_VERTICES:,} vertices", where=where)
        kept = u != v
        u, v = u[kept].astype(np.int32), v[kept].astype(np.int32)
        rows, columns = np.concatenate([u, v]), np.concatenate([v, u])
        matrix: Any = coo_array((np.ones(len(rows), bool), (rows, columns)), shape=(n, n)).tocsr()
        matrix.sort_indices()
        return Graph(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32))
