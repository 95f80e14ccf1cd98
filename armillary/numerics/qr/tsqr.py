"""TSQR does a Householder QR of every block, then of stacked triangles along a binary tree; Q comes back down the tree.

The block of a rank is cut again into leaves that fit a cache. Orthogonal whatever the condition; twice the flops of Cholesky's way, and
the tree is walked in both directions.

Demmel, Grigori, Hoemmen, Langou: Communication-optimal parallel and sequential QR and LU factorizations, SIAM J. Sci. Comput. 34, 2012.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import numpy as np

from armillary import arrays

from .factors.method import Factors, Info, Method, Source
from .factors.triangles import Array, phases
from .ranks import rows
from .ranks.team import QR_EFFICIENCY, Team

#: Rows of a leaf on the host.
_LEAF = 1024


@dataclass(frozen=True)
class Tsqr(Method):
    """Householder QR along a binary tree of the ranks."""

    name = "tsqr"

    def factor(self, team: Team, source: Source) -> Factors:
        return factor_by_tree(team, source)


def factor_by_tree(team: Team, source: Source, asked: str = "tsqr", fallback: str = "", growth: float = 0.0) -> Factors:
    """Returns TSQR of the block; the rest is for the report of a method that fell back to it."""
    n = source.columns()
    q, r = local_qr(source.copy())
    team.on_rows(q, 4 * n * n, 2, QR_EFFICIENCY)
    kept: list[tuple[Array, int]] = []

    def combine(own: Array, theirs: Array) -> Array:
        stacked, triangle = host_qr(np.concatenate([own, theirs]))
        kept.append((stacked, own.shape[0]))
        team.work(20 / 3 * n**3 / QR_EFFICIENCY)
        return triangle

    def expand(value: tuple[Array, Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        stacked, own = kept.pop()
        piece = stacked @ value[0]
        team.work(4 * n**3)
        return (piece[:own], value[1]), (piece[own:], value[1])

    top = team.up(r, combine)
    value = None
    if team.rank == 0:
        signs = phases(top)
        value = np.diag(signs), top * signs.conj()[:, None]
    piece, whole = team.down(value, expand)
    team.on_rows(q, 2 * n * n, 2)
    if q.shape[1] == n:
        rows.multiply(q, np.ascontiguousarray(piece))
    else:
        q = q @ rows.like(piece, q)
    return Factors(q, np.asarray(whole), Info("tsqr", fallback=fallback, growth=growth))


def local_qr(x: arrays.Array) -> tuple[arrays.Array, Array]:
    """Returns Q (where x was, if it is tall) and R on the host, of one block: m×k and k×n, k = min(m, n)."""
    m, n = x.shape
    if not isinstance(x, np.ndarray):
        q, r = arrays.qr(x)
        return q, arrays.to_host(r)
    leaf = max(_LEAF, 4 * n)
    if m <= 2 * leaf:
        q, r = host_qr(x)
        return np.ascontiguousarray(q), r
    starts = range(0, m - leaf + 1, leaf)
    leaves = list(zip(starts, [*starts[1:], m], range(0, len(starts) * n, n)))

    def up(where: tuple[int, int, int]) -> Array:
        start, end, _ = where
        x[start:end], triangle = host_qr(x[start:end])
        return triangle

    q, r = local_qr(np.concatenate(rows.each(leaves, up)))

    def down(where: tuple[int, int, int]) -> None:
        start, end, above = where
        x[start:end] = x[start:end] @ q[above : above + n]

    rows.each(leaves, down)
    return x, r


def host_qr(x: Array) -> tuple[Array, Array]:
    """Returns the reduced QR by LAPACK; signs are its own."""
    if 0 in x.shape:
        return np.zeros((x.shape[0], 0), x.dtype), np.zeros((0, x.shape[1]), x.dtype)
    q, r = import_module("scipy.linalg").qr(x, mode="economic", check_finite=False)
    return q, r
