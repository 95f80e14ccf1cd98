"""The sparse Cholesky factor of a subdomain's matrix, by SciPy's SuperLU in symmetric mode, and the parts that do not depend on values."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from armillary.errors import InputError

from .elimination import factor_pattern, parents, postorder

Matrix = Any


@dataclass(frozen=True)
class Ordering:
    """The fill-reducing order of a matrix and the pattern of its factor; made once for a pattern.

    `order[place]` is the unknown at a place, `position` its inverse. `indptr` and `rows` are the factor's entries below the diagonal by
    columns, `parent` its elimination tree. `gather` brings the values of the matrix into the permuted matrix's columns.
    """

    order: np.ndarray
    position: np.ndarray
    parent: np.ndarray
    indptr: np.ndarray
    rows: np.ndarray
    gather: np.ndarray
    permuted_indptr: np.ndarray
    permuted_rows: np.ndarray

    @property
    def n(self) -> int:
        """The number of unknowns."""
        return len(self.order)

    @property
    def entries(self) -> int:
        """Entries of the factor with its diagonal."""
        return len(self.rows) + self.n

    def permuted(self, values: np.ndarray) -> sparse.csc_array:
        """Returns P K Pᵀ with these values of K (in the order of its sorted columns)."""
        return sparse.csc_array((values[self.gather], self.permuted_rows, self.permuted_indptr), shape=(self.n, self.n))


@dataclass(frozen=True)
class Factor:
    """L with P K Pᵀ = L Lᵀ. `solve` uses SuperLU's own factors; `lower` is made when it is first asked for."""

    ordering: Ordering
    #: Squares of L's diagonal, by place.
    pivots: np.ndarray
    superlu: Any
    #: Place by SuperLU's place, from its own order to the postorder of the same tree; None where it saw the permuted matrix, in an update.
    places: np.ndarray | None

    @functools.cached_property
    def lower(self) -> sparse.csc_array:
        """L by columns, rows sorted, its diagonal first in each."""
        lower = self.superlu.L
        if self.places is not None:
            # An equivalent order permutes the factor and leaves it lower triangular.
            entries = lower.tocoo()
            where = self.places[entries.row], self.places[entries.col]
            lower = sparse.coo_array((entries.data, where), shape=lower.shape)
        found = sparse.csc_array(sparse.csr_array(lower))  # Through rows: sorted in linear time.
        found.data *= np.repeat(np.sqrt(self.pivots), np.diff(found.indptr))
        return found

    def solve(self, b: np.ndarray) -> np.ndarray:
        """Returns K⁻¹ b for a vector or the columns of a matrix."""
        if self.places is not None:
            return self.superlu.solve(b)
        return self.superlu.solve(np.ascontiguousarray(b[self.ordering.order]))[self.ordering.position]


def is_matrix(x: Any) -> bool:
    """Says whether it is a sparse matrix or a two-dimensional NumPy array."""
    return sparse.issparse(x) or (isinstance(x, np.ndarray) and x.ndim == 2)


def checked_matrix(k: Matrix, where: str = "K") -> sparse.csc_array:
    """Returns K as float64 columns with sorted rows, refused unless it is square, finite and symmetric in pattern and values."""
    if not is_matrix(k):
        raise InputError(f"found {type(k).__name__}; expected a sparse matrix or a two-dimensional NumPy array", where=where)
    if k.shape[0] != k.shape[1] or k.shape[0] == 0:
        raise InputError(f"found shape {k.shape}; expected a square matrix of at least one row", where=where)
    if k.dtype.kind not in "biuf":
        raise InputError(f"found {k.dtype}; expected real numbers", where=where)
    found = sparse.csc_array(k, dtype=np.float64, copy=True)  # The caller's arrays are changed below otherwise.
    found.sum_duplicates()
    if not np.isfinite(found.data).all():
        raise InputError("found infinities or NaNs; expected finite numbers", where=where)
    difference = abs(found - found.T).tocoo()
    most = difference.data.max(initial=0.0)
    if most > 1e-10 * abs(found.data).max(initial=0.0):
        at = int(difference.data.argmax())
        i, j = (int(axis[at]) for axis in difference.coords)
        raise InputError(f"not symmetric: entries ({i}, {j}) and ({j}, {i}) differ by {most:.3g}, the largest difference", where=where)
    turned = sparse.csc_array(found.T)
    turned.sort_indices()
    if not (np.array_equal(turned.indptr, found.indptr) and np.array_equal(turned.indices, found.indices)):
        raise InputError("an entry is stored on one side of the diagonal only; expected a symmetric pattern", where=where)
    return found


def order_and_factor(k: sparse.csc_array) -> tuple[Ordering, Factor]:
    """Returns the fill-reducing order (minimum degree, then a postorder of its tree) with its symbolic factor, and the factor of these
    values.
    """
    superlu = _superlu(k, "MMD_AT_PLUS_A", np.arange(k.shape[0]))
    own = np.argsort(superlu.perm_c)
    if not np.array_equal(superlu.perm_r, superlu.perm_c):
        raise _indefinite(k, own)
    tree = _numbered(k, own)
    # Minimum degree leaves boundary unknowns, which have few neighbours, at the front; in a postorder each comes when its part is
    # eliminated, so that right-hand sides begin later. The factor is the same but for its order.
    turned = postorder(parents(tree.indptr, tree.indices))
    order = own[turned]
    permuted = _numbered(k, order)
    parent = parents(permuted.indptr, permuted.indices)
    indptr, rows = factor_pattern(permuted.indptr, permuted.indices, parent)
    ordering = Ordering(order, np.argsort(order), parent, indptr, rows, permuted.data, permuted.indptr, permuted.indices)
    return ordering, _factor(ordering, k, superlu, np.argsort(turned))


def _numbered(k: sparse.csc_array, order: np.ndarray) -> sparse.csc_array:
    """Returns P K Pᵀ by sorted columns with the number of K's entry in place of each value."""
    found = sparse.csc_array((np.arange(k.nnz, dtype=np.int64), k.indices, k.indptr), shape=k.shape)
    found = sparse.csc_array(found[order][:, order])
    found.sort_indices()
    return found


def factor_again(ordering: Ordering, k: sparse.csc_array) -> Factor:
    """Returns the factor of other values with the same pattern, in the order that is known."""
    superlu = _superlu(ordering.permuted(k.data), "NATURAL", ordering.order)
    places = np.arange(ordering.n)
    if not (np.array_equal(superlu.perm_r, places) and np.array_equal(superlu.perm_c, places)):
        raise _indefinite(k, ordering.order)
    return _factor(ordering, k, superlu, None)


def _factor(ordering: Ordering, k: sparse.csc_array, superlu: Any, places: np.ndarray | None) -> Factor:
    pivots = superlu.U.diagonal()
    if places is not None:
        pivots = pivots[np.argsort(places)]
    # A pivot is a diagonal entry less what was eliminated: below its own rounding error it is no longer positive.
    least = ordering.n * np.finfo(np.float64).eps * k.diagonal()[ordering.order]
    bad = np.flatnonzero(~(pivots > np.maximum(least, 0.0)))
    if len(bad):
        raise InputError(
            f"not positive definite: pivot {bad[0]} (unknown {ordering.order[bad[0]]}) is {pivots[bad[0]]:.3g}; expected positive pivots "
            "(a floating subdomain must be regularised first)",
            where="K",
        )
    return Factor(ordering, pivots, superlu, places)


def _superlu(k: sparse.csc_array, how: Any, order: np.ndarray) -> Any:
    try:
        return splu(k, permc_spec=how, diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError:
        raise _indefinite(k, order) from None


def _indefinite(k: sparse.csc_array, order: np.ndarray) -> InputError:
    """Says which pivot fails where SuperLU only says that one did: the smallest once the diagonal is raised a little."""
    raised = k + sparse.eye_array(k.shape[0], format="csc") * (1e-9 * abs(k.data).max(initial=1.0))
    try:
        shifted = splu(sparse.csc_array(raised), permc_spec="NATURAL", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        at = int(shifted.U.diagonal().argmin())
        which = f"pivot {at} (unknown {order[at]}) is"
    except RuntimeError:
        which = "a pivot is"
    return InputError(f"not positive definite: {which} not positive; expected positive pivots", where="K")
