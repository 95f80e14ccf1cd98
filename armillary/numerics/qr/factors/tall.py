"""One call for a program that has a tall matrix: factors, least squares, singular values."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary import arrays
from armillary.errors import InputError, unknown

from ..cholqr import CholQr
from ..cholqr2 import CholQr2
from ..householder import Householder
from ..lu_cholqr import LuCholQr
from ..lu_cholqr2 import LuCholQr2
from ..mgs import Mgs
from ..randomized_cholqr import RandomizedCholQr
from ..ranks import rows
from ..ranks.team import Team
from ..scholqr3 import ScholQr3
from ..tsqr import Tsqr
from .cholesky_passes import cholesky_passes
from .implicit import ImplicitQ
from .method import Breakdown, Factors, Info, Method, Source, cuda_passes, finished, in_range, scales_of
from .triangles import conditioned, unit, upper_cholesky

if TYPE_CHECKING:
    from armillary.comm import Communicator

METHODS: dict[str, type[Method]] = {
    one.name: one for one in (LuCholQr2, LuCholQr, CholQr, CholQr2, ScholQr3, Tsqr, Householder, Mgs, RandomizedCholQr)
}


@dataclass(frozen=True)
class Auto(LuCholQr2):
    """CholeskyQR2 where the first Gram matrix says that it is enough (κ̂² u < 0.1), else LU-CholeskyQR2: one allreduce is lost at most.

    Not part of the arena. CholeskyQR2 from Fukaya and others, 2014; the choice is ours.
    """

    name = "auto"

    def on_device(self, a: arrays.Array) -> Factors | None:
        passes = cuda_passes(a, pivoted=False) if self.q == "explicit" else None
        if passes is not None:
            (first,) = passes.triangles()
            if first.usable(rows.INVERSE_BELOW) and in_range(first.matrix):
                condition = conditioned(first.matrix * scales_of(first.matrix) if self.normalise else first.matrix)
                if condition**2 * unit(first.matrix.dtype) < 0.1:
                    return finished(passes, first.matrix, Info("cholqr2", condition=condition))
            del passes
        found = super().on_device(a)
        return None if found is None else Factors(found.q, found.r, Info(**{**vars(found.info), "method": "lu-cholqr2"}))

    def factor(self, team: Team, source: Source) -> Factors:
        self.validate()
        if self.q == "explicit":
            x = source.copy()
            gram = team.gram(x)
            try:
                r = upper_cholesky(gram)
                condition = conditioned(r)
                if condition**2 * unit(gram.dtype) < 0.1:
                    (second,) = cholesky_passes(team, x, team.divide_and_gram(x, r), 1)
                    return Factors(x, second @ r, Info("cholqr2", condition=condition))
            except Breakdown:
                pass
            del x
        found = super().factor(team, source)
        if found.info.method != self.name:
            return found
        return Factors(found.q, found.r, Info(**{**vars(found.info), "method": "lu-cholqr2"}))


def tall_qr(a: Any, comm: Communicator | None = None, method: str = "auto", **parameters: Any) -> tuple[Any, Any, Info]:
    """Returns Q, R and an `Info` of a matrix of m ≥ n rows, of which this rank has the rows `a` (m_i×n, any m_i) in the order of ranks.

    Q of m_i×n has orthonormal columns over all ranks; R of n×n is the same on every rank and has a real diagonal that is not negative, so
    that all methods give the same factors. Kind, device and type are those of `a`: NumPy, CuPy or PyTorch, float32, float64, complex64
    or complex128. Large work stays on the device; n×n matrices are factored and exchanged on the host, except for a float64 PyTorch
    block of at most 64 columns on one CUDA device, where they stay there too. A Dask array in blocks of rows
    gives Dask arrays (`comm` is None then). `method` is "auto" (CholeskyQR2 where the condition allows, else LU-CholeskyQR2) or one of the
    arena's techniques; `parameters` are its own (`pivoting="local"`).

    Raises `Breakdown` where the method cannot factor the matrix (never a Q with NaNs), `InputError` for what is no tall matrix.
    """
    chosen = _method(method, parameters)
    if not isinstance(a, np.ndarray) and type(a).__module__.partition(".")[0] == "dask":
        from ..ranks.dask_rows import dask_qr

        return dask_qr(a, comm, chosen)
    arrays.kind_of(a)
    return chosen.factorise(a, comm)


def _method(method: str, parameters: dict[str, Any]) -> Method:
    from armillary.parameters import with_parameters

    known: dict[str, type[Method]] = {"auto": Auto, **METHODS}
    if method not in known:
        raise unknown("method", str(method), known)
    return with_parameters(known[method], parameters, where=method)


def lstsq(a: Any, b: Any, comm: Communicator | None = None, method: str = "auto", **parameters: Any) -> tuple[Any, Any]:
    """Returns x (n, or n×k, the same on every rank) that minimises ‖A x − b‖, and these norms, for the rows `a` and `b` of this rank.

    As `tall_qr`, and two more allreduces, of n·k and of k words. Columns that depend on each other are an `InputError`.
    """
    arrays.device_of(a, b)
    if b.ndim not in (1, 2) or a.ndim != 2 or b.shape[0] != a.shape[0]:
        raise InputError(f"found shape {tuple(b.shape)}; expected {a.shape[0]} rows as a has", where="b")
    if b.dtype != a.dtype:
        raise InputError(f"found {b.dtype}; expected {a.dtype} as a has", where="b")
    team = Team(comm)
    try:
        q, r, _ = tall_qr(a, comm, method, **parameters)
    except Breakdown as breakdown:
        raise InputError(f"{breakdown}; expected independent columns", where="a") from breakdown
    wide = b if b.ndim == 2 else b[:, None]
    small = arrays.to_host(r)
    largest = np.abs(small).max(axis=0)
    weak = np.flatnonzero(np.abs(np.diagonal(small)) <= 16 * small.shape[0] * unit(small.dtype) * largest)
    if len(weak):
        raise InputError(f"column {int(weak[0])} depends on those before it; expected independent columns", where="a")
    words = arrays.to_host(q.H @ wide) if isinstance(q, ImplicitQ) else team.total(rows.inner(q, wide))
    x = rows.like(import_module("scipy.linalg").solve_triangular(small, words, check_finite=False), a)
    off = wide - a @ x
    xp = arrays.namespace(a)
    norms = np.sqrt(team.total(arrays.to_host(xp.sum(abs(off) ** 2, axis=0))))
    norms = rows.like(norms, a)
    return (x, norms) if b.ndim == 2 else (x[:, 0], norms[0])


def tall_svd(a: Any, comm: Communicator | None = None, method: str = "auto", **parameters: Any) -> tuple[Any, Any, Any]:
    """Returns U (this rank's m_i×n), s (n, falling) and Vᴴ (n×n) with A = U diag(s) Vᴴ: a tall QR and the SVD of R on the host."""
    q, r, _ = tall_qr(a, comm, method, **parameters)
    left, s, right = np.linalg.svd(arrays.to_host(r))
    u = q @ rows.like(left, a) if isinstance(q, ImplicitQ) else q
    if u is q:
        rows.multiply(q, left)
    return u, rows.like(s, a), rows.like(right, a)
