"""Assembles Schur complements B K⁻¹ Bᵀ by one interface for all methods."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from armillary import arrays
from armillary.errors import InputError, unknown

from .factor import Factor, Ordering, checked_matrix, factor_again, is_matrix, order_and_factor
from .method import Method, Work, moved

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

METHODS = {
    "stepped": ".stepped:Stepped",
    "explicit": ".explicit:Explicit",
    "explicit-sparse": ".explicit_sparse:ExplicitSparse",
    "augmented": ".augmented:Augmented",
    "implicit": ".implicit:Implicit",
}


class SchurAssembler:
    """F = B K⁻¹ Bᵀ for a sparse symmetric positive definite K (n×n) and a sparse B (m×n).

    The symbolic phase (order, pattern of the factor, staircase, panels) runs once, when it is first needed or by `symbolic()`; `update`
    brings new values of K. `like` is an array whose kind and device the dense panels and the result get (NumPy without it); `xp` may name
    the library instead. The factor is made on the host and moved. Rows of B are signed Boolean unless `general`.
    """

    def __init__(
        self, k: Any, b: Any, method: str | Method = "stepped", *, xp: Any = None, like: arrays.Array = None, general: bool = False
    ) -> None:
        self.method = method_of(method)
        self.k = checked_matrix(k)
        self.b = checked_rows(b, self.k.shape[0], general)
        self.like = _like(xp, like)
        #: How often the symbolic and the numeric phase have run.
        self.symbolic_runs = 0
        self.numeric_runs = 0
        #: Set by the symbolic phase, and kept.
        self._ordering: Ordering | None = None
        self._plan: Any = None
        #: The factor of the current values; None until it is needed.
        self._factor: Factor | None = None

    def symbolic(self) -> SchurAssembler:
        """Runs what depends on the patterns alone, unless it has run; the first factor comes with it. Returns itself."""
        if self._ordering is None:
            self._ordering, self._factor = order_and_factor(self.k)
            self._plan = self.method.plan(self._ordering, self.b)
            self.symbolic_runs += 1
            self.numeric_runs += 1
        return self

    def with_method(self, method: str | Method) -> SchurAssembler:
        """Returns an assembler with the same matrices, order and factor for another method."""
        twin = SchurAssembler.__new__(SchurAssembler)
        twin.__dict__.update(self.symbolic().__dict__)
        twin.method = method_of(method)
        twin._plan = twin.method.plan(self.ordering, self.b)
        return twin

    def on(self, like: arrays.Array) -> SchurAssembler:
        """Returns the same assembler with panels of the kind and on the device of `like`, or itself for None."""
        if like is None:
            return self
        twin = SchurAssembler.__new__(SchurAssembler)
        twin.__dict__.update(self.__dict__)
        twin.like = _like(None, like)
        return twin

    def update(self, values: Any) -> SchurAssembler:
        """Takes new values of K with its pattern: a matrix, or values in the order of its sorted columns. Returns itself."""
        if sparse.issparse(values) or getattr(values, "ndim", 1) == 2:
            new = checked_matrix(values)
            if not (np.array_equal(new.indptr, self.k.indptr) and np.array_equal(new.indices, self.k.indices)):
                raise InputError("found another pattern; expected the entries that K had", where="K")
        else:
            found = np.asarray(values, dtype=np.float64)
            if found.shape != self.k.data.shape:
                raise InputError(f"found {found.size} values; expected {self.k.nnz}, as K has", where="K")
            new = checked_matrix(sparse.csc_array((found, self.k.indices, self.k.indptr), shape=self.k.shape))
        self.k = new
        self._factor = None
        return self

    @property
    def ordering(self) -> Ordering:
        """The fill-reducing order and the pattern of the factor."""
        self.symbolic()
        assert self._ordering is not None
        return self._ordering

    @property
    def factor(self) -> Factor:
        """The factor of the current values, made now unless it is there."""
        ordering = self.ordering
        if self._factor is None:
            self._factor = factor_again(ordering, self.k)
            self.numeric_runs += 1
        return self._factor

    def __call__(self, alpha: float = 1.0, mirror: bool = True) -> arrays.Array:
        """Returns alpha·F (m×m), symmetric; without `mirror` only its lower triangle is kept and the rest is zero."""
        f = self.method.assemble(self.factor, self.b, self._plan, self.like)
        if alpha != 1.0:
            f = alpha * f
        return f if mirror else arrays.namespace(f).tril(f)

    def schur(self, a22: Any) -> arrays.Array:
        """Returns A22 − B K⁻¹ Bᵀ (m×m), for BDDC or static condensation; A22 is a sparse matrix or an array of the panels' kind."""
        if hasattr(a22, "tocsr"):
            a22 = moved(a22.toarray().astype(np.float64, copy=False), self.like)
        m = self.b.shape[0]
        if getattr(a22, "shape", None) != (m, m):
            raise InputError(f"found shape {getattr(a22, 'shape', None)}; expected {(m, m)}, as B has {m} rows", where="A22")
        arrays.device_of(a22, self.like)
        return a22 - self()

    @property
    def work(self) -> Work:
        """The exact count of floating-point operations of one assembly."""
        self.symbolic()
        return self.method.work(self._plan)

    def operator(self) -> LinearOperator:
        """Returns F as SciPy's operator on host vectors: the assembled matrix, or solves with the factor for `implicit`."""
        from scipy.sparse.linalg import LinearOperator

        if self.method.assembles:
            f = arrays.to_host(self())
            return LinearOperator(f.shape, matvec=lambda x: f @ x, rmatvec=lambda x: f @ x, matmat=lambda x: f @ x, dtype=np.float64)
        b, factor = self.b, self.factor

        def apply(x: np.ndarray) -> np.ndarray:
            return b @ factor.solve(b.T @ x)

        return LinearOperator((b.shape[0],) * 2, matvec=apply, rmatvec=apply, matmat=apply, dtype=np.float64)


def method_of(method: str | Method) -> Method:
    """Returns the method of this name with its defaults, or the method itself."""
    if isinstance(method, Method):
        return method
    if method not in METHODS:
        raise unknown("method", str(method), METHODS, where="SchurAssembler")
    module, _, name = METHODS[method].partition(":")
    return getattr(import_module(module, __package__.rpartition(".")[0]), name)()


def checked_rows(b: Any, n: int, general: bool = False) -> sparse.csr_array:
    """Returns B as float64 rows, refused unless it has n columns, no empty row, and entries −1, 0 and 1 (any finite ones if `general`)."""
    if not is_matrix(b):
        raise InputError(f"found {type(b).__name__}; expected a sparse matrix or a two-dimensional NumPy array", where="B")
    if b.shape[1] != n:
        raise InputError(f"found {b.shape[1]} columns; expected {n}, as K has", where="B")
    if b.dtype.kind not in "biuf":
        raise InputError(f"found {b.dtype}; expected real numbers", where="B")
    found = sparse.csr_array(b, dtype=np.float64, copy=True)  # The caller's arrays are changed below otherwise.
    found.sum_duplicates()
    found.eliminate_zeros()
    if not np.isfinite(found.data).all():
        raise InputError("found infinities or NaNs; expected finite numbers", where="B")
    lengths = np.diff(found.indptr)
    if (lengths == 0).any():
        raise InputError(f"row {int(np.argmin(lengths))} is zero; expected an entry in every row", where="B")
    odd = np.flatnonzero(abs(found.data) != 1.0)
    if len(odd) and not general:
        row = int(np.searchsorted(found.indptr, odd[0], side="right")) - 1
        raise InputError(f"row {row}: found {found.data[odd[0]]:g}; expected −1, 0 or 1 (general=True takes any)", where="B")
    return found


def _like(xp: Any, like: arrays.Array) -> arrays.Array:
    if like is not None:
        arrays.kind_of(like)
        return like
    return np.empty(0) if xp is None else xp.zeros(0)
