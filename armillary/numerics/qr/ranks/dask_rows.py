"""Tall QR of a Dask array in blocks of rows: small factors are computed now, Q stays lazy.

Blocks are read once for the candidates of the tournament and once for each Gram matrix; nothing of the size of A is kept. Where L grows,
Dask's own TSQR takes over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError

from ..factors.method import TYPES, Info, Method
from ..factors.triangles import Array, Breakdown, conditioned, phases, pivot_order, real_diagonal, unit, upper_cholesky, upper_factor
from ..lu_cholqr2 import LuCholQr2, _bounded, _zero_pivot
from . import rows

if TYPE_CHECKING:
    from armillary.comm import Communicator


def dask_qr(a: Any, comm: Communicator | None, method: Method) -> tuple[Any, Any, Info]:
    """Returns Q (lazy, in the blocks of `a`), R and what it took: as `dask.array.linalg.qr`, with a diagonal of R that is not negative."""
    import dask.array as da
    from dask.base import compute
    from dask.delayed import delayed

    if comm is not None:
        raise InputError("found a Dask array and a communicator; expected one of them")
    if not isinstance(method, LuCholQr2) or method.q != "explicit" or method.pivoting != "tournament" or method.rank_deficient != "raise":
        raise InputError('found another method for a Dask array; expected "auto", "lu-cholqr2" or "lu-cholqr" with the tournament')
    if a.ndim != 2 or a.numblocks[1] != 1:
        raise InputError(f"found blocks {a.numblocks}; expected a matrix in blocks of whole rows (rechunk it)", where="a")
    if str(a.dtype) not in TYPES:
        raise InputError(f"found {a.dtype}; expected {', '.join(TYPES)}", where="a")
    if np.isnan(a.shape[0]) or a.shape[0] < a.shape[1] or not a.shape[1]:
        raise InputError(f"found the shape {a.shape}; expected a known one with at least as many rows as columns", where="a")
    blocks = a.to_delayed().ravel()
    factors: list[Array] = []
    growth = 0.0
    try:
        info = Info("lu-cholqr2" if method.passes == 2 else "lu-cholqr")
        if method.name == "auto":
            (gram,) = compute(_sum([delayed(_gram)(block, []) for block in blocks]))
            r = _good(_finite(gram, a))
            if r is not None:
                info = Info("cholqr2", condition=conditioned(r))
                factors = [r]
        if not factors:
            (won,) = compute(_tree([delayed(_candidates)(block) for block in blocks], delayed(_meet)))
            u, _ = upper_factor(_finite(won, a))
            _zero_pivot(u)
            factors = [u]
            (gram,) = compute(_sum([delayed(_gram)(block, factors) for block in blocks]))
            growth = float(np.sqrt(np.diagonal(_finite(gram, a)).real.max()))
            factors.append(_bounded(gram, u))
            info = Info(info.method, growth=growth, condition=conditioned(u))
        if method.passes == 2:
            (gram,) = compute(_sum([delayed(_gram)(block, factors) for block in blocks]))
            factors.append(upper_cholesky(gram))
    except Breakdown as breakdown:
        if method.fallback == "raise" or breakdown.args[0].endswith("before it"):
            raise
        q, r = da.linalg.tsqr(a)
        signs = phases(np.asarray(r))
        return q * signs, r * signs.conj()[:, None], Info("tsqr", fallback=str(breakdown), growth=growth)
    q = da.map_blocks(_divided, a, factors=factors, dtype=a.dtype, meta=np.empty((0, 0), a.dtype))
    whole = factors[0]
    for factor in factors[1:]:
        whole = factor @ whole
    return q, da.from_array(real_diagonal(whole), chunks=-1), info


def _divided(block: Array, factors: list[Array]) -> Array:
    x = np.array(block, order="C")
    for factor in factors:
        rows.divide(x, factor)
    return x


def _gram(block: Array, factors: list[Array]) -> Array:
    return rows.gram(_divided(block, factors))


def _candidates(block: Array) -> Array:
    x = np.ascontiguousarray(block)
    # A NaN would be passed over by the pivoting; one row of it is enough to be seen.
    return x[rows.top_rows(x)] if np.isfinite(rows.magnitudes(x)).all() else np.full((1, x.shape[1]), np.nan, x.dtype)


def _meet(own: Array, theirs: Array) -> Array:
    both = np.concatenate([own, theirs])
    return both[pivot_order(both)] if np.isfinite(both).all() else np.full((1, both.shape[1]), np.nan, both.dtype)


def _tree(level: list[Any], combine: Any) -> Any:
    while len(level) > 1:
        level = [combine(*level[i : i + 2]) if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)]
    return level[0]


def _sum(parts: list[Any]) -> Any:
    return _tree(parts, lambda own, theirs: own + theirs)


def _finite(found: Array, a: Any) -> Array:
    if not np.isfinite(found).all():
        import dask.array as da

        if not bool(da.isfinite(a).all().compute()):
            raise InputError("found an infinity or NaN; expected finite numbers", where="a")
    return found


def _good(gram: Array) -> Array | None:
    """Returns the Cholesky factor where two passes of CholeskyQR are enough."""
    try:
        r = upper_cholesky(gram)
    except Breakdown:
        return None
    return r if conditioned(r) ** 2 * unit(r.dtype) < 0.1 else None
