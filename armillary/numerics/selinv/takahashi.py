"""Selected inversion on a general sparse factor, entry by entry, as PARDISO and MUMPS do it, but without supernodes.

With A = L·D·Lᴴ (from SuperLU in symmetric mode, with a fill-reducing order) the inverse Z obeys Z = L⁻ᴴD⁻¹ + Z·(I − L). So column j on the
pattern of L needs only entries of Z on that pattern, in columns to its right: Z_ij = −Σ_k Z_ik L_kj and Z_jj = 1/d_j − Σ_k conj(L_kj) Z_kj,
k over the pattern of column j, from the last column to the first. The pattern must be closed (with i and k in a column, (i, k) is in the
pattern too), which that of a symbolic factorisation is; SuperLU's numbers are put in its place.

Takahashi, Fagan, Chin: Formation of a sparse bus impedance matrix and its application to short circuit study. PICA, 1973.
Erisman, Tinney: On computing certain elements of the inverse of a sparse matrix. Communications of the ACM, 1975.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop

from .inversion.method import Answer, Method, Problem


@dataclass(frozen=True)
class Takahashi(Method):
    """Factors LDLᴴ by SuperLU, then runs the recurrence on the factor's pattern."""

    def invert(self, problem: Problem) -> Answer:
        from scipy.sparse import csc_array
        from scipy.sparse.linalg import splu

        matrix = problem.sparse.tocsc()
        order = matrix.shape[0]
        lu = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        d = lu.U.diagonal()
        if not np.array_equal(lu.perm_r, lu.perm_c) or not (d.real > 0).all():
            raise InputError("found a pivot that is not positive; expected a positive definite matrix", where="takahashi")
        pointers, rows = symbolic(matrix, lu.perm_c)
        factor = lu.L.tocsc()
        factor.sort_indices()
        values = np.zeros(len(rows), matrix.dtype)
        _place(factor.indptr, factor.indices, factor.data, pointers, rows, values)
        inverse, diagonal = np.zeros_like(values), np.zeros(order, matrix.dtype)
        _recur(pointers, rows, values, 1 / d.real, inverse, diagonal)
        logdet = float(np.log(d.real).sum())
        back = np.empty(order, np.int64)
        back[lu.perm_c] = np.arange(order)
        found = csc_array((inverse, rows, pointers), shape=(order, order))
        held = (lu.L.nnz + lu.U.nnz) * (matrix.dtype.itemsize + 4)
        return Answer(Permuted(found, diagonal, back), logdet, native_bytes=held)


@dataclass(frozen=True)
class Permuted:
    """The lower triangle of an inverse in the factor's order; `back` gives the matrix's own rows."""

    lower: Any
    diagonal: np.ndarray
    back: np.ndarray

    def to_sparse(self) -> Any:
        """Returns the inverse on the pattern of L + Lᴴ, in the order of the matrix."""
        from scipy.sparse import coo_array

        lower = self.lower.tocoo()
        i, j, n = self.back[lower.coords[0]], self.back[lower.coords[1]], len(self.back)
        rows, columns = np.concatenate([i, j, self.back]), np.concatenate([j, i, self.back])
        data = np.concatenate([lower.data, lower.data.conj(), self.diagonal])
        return coo_array((data, (rows, columns)), shape=(n, n)).tocsr()


def symbolic(matrix: Any, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pattern of L below its diagonal, by columns (pointers, sorted rows), where row and column i of the matrix become
    `order[i]`.
    """
    from scipy.sparse import coo_array

    found = matrix.tocoo()
    i, j = order[found.coords[0]].astype(np.int64), order[found.coords[1]].astype(np.int64)
    below = i > j
    moved = coo_array((np.ones(int(below.sum()), np.int8), (i[below], j[below])), shape=matrix.shape).tocsc()
    pointers, rows = _fill(matrix.shape[0], moved.indptr.astype(np.int64), moved.indices.astype(np.int64))
    return pointers, rows


@loop
def _fill(n, starts, entries):
    # The pattern of column j: the matrix's own, and those of the columns whose first entry below the diagonal is j.
    pointers = np.zeros(n + 1, np.int64)
    rows = np.empty(max(16, 4 * len(entries)), np.int64)
    child, sibling = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    seen = np.full(n, -1, np.int64)
    used = 0
    for j in range(n):
        begin = used
        seen[j] = j
        if used + n - j > len(rows):
            more = np.empty(max(2 * len(rows), used + n - j), np.int64)
            more[:used] = rows[:used]
            rows = more
        for p in range(starts[j], starts[j + 1]):
            if seen[entries[p]] != j:
                seen[entries[p]] = j
                rows[used] = entries[p]
                used += 1
        c = child[j]
        while c >= 0:
            for p in range(pointers[c], pointers[c + 1]):
                if seen[rows[p]] != j:
                    seen[rows[p]] = j
                    rows[used] = rows[p]
                    used += 1
            c = sibling[c]
        rows[begin:used].sort()
        pointers[j + 1] = used
        if used > begin:
            parent = rows[begin]
            sibling[j] = child[parent]
            child[parent] = j
    return pointers, rows[:used].copy()


@loop
def _place(starts, entries, data, pointers, rows, values):
    # Both columns are sorted; what the factor has beyond the symbolic pattern (padding of supernodes) is zero.
    for j in range(len(pointers) - 1):
        q = pointers[j]
        for p in range(starts[j], starts[j + 1]):
            while q < pointers[j + 1] and rows[q] < entries[p]:
                q += 1
            if q < pointers[j + 1] and rows[q] == entries[p]:
                values[q] = data[p]


@loop
def _recur(pointers, rows, values, reciprocal, inverse, diagonal):
    # Invariant: columns to the right of j are done. place[i] is where row i stands in column j, or -1.
    n = len(pointers) - 1
    place = np.full(n, -1, np.int64)
    total = np.zeros(n, values.dtype)
    for j in range(n - 1, -1, -1):
        begin, end = pointers[j], pointers[j + 1]
        for p in range(begin, end):
            place[rows[p]] = p - begin
            total[p - begin] = 0
        for p in range(begin, end):
            k = rows[p]
            ljk = values[p]
            own = diagonal[k] * ljk
            for q in range(pointers[k], pointers[k + 1]):
                at = place[rows[q]]
                if at >= 0:
                    own += np.conj(inverse[q]) * values[begin + at]
                    total[at] += inverse[q] * ljk
            total[p - begin] += own
        corner = diagonal[j] + reciprocal[j]
        for p in range(begin, end):
            inverse[p] = -total[p - begin]
            corner -= np.conj(values[p]) * inverse[p]
            place[rows[p]] = -1
        diagonal[j] = corner
