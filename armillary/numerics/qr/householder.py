"""Householder QR over ranks, column by column, as ScaLAPACK does it without blocking, with two sums over all ranks per column.

The reflectors stay where the columns were; Q is I − V T Vᴴ with T from one more sum. Orthogonal whatever the condition, bound by latency.

Householder: Unitary triangularization of a nonsymmetric matrix, J. ACM 5, 1958; Blackford and others: ScaLAPACK users' guide, 1997.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary import arrays

from .factors.method import Factors, Info, Method, Source
from .ranks import rows
from .ranks.team import Team


@dataclass(frozen=True)
class Householder(Method):
    """One reflector per column with two allreduces each and one for T, which makes 2n in all."""

    name = "householder"

    def factor(self, team: Team, source: Source) -> Factors:
        x, n = source.copy(), source.columns()
        dtype = np.dtype(rows.host_type(x))
        tau, beta = np.zeros(n, dtype), np.zeros(n, dtype)
        for j in range(n):
            _reflect(team, x, j, tau, beta)
        # Rows of the leading square: R above the diagonal, V on and below it.
        top = np.zeros((n, n), dtype)
        first = min(x.shape[0], max(0, n - team.offset))
        if first:
            top[team.offset : team.offset + first] = arrays.to_host(x[:first])
        for j in range(1, n):
            x[: max(0, min(x.shape[0], j - team.offset)), j] = 0
        team.on_rows(x, n * (n + 1), 1)
        whole = team.total(np.stack([top, rows.gram(x)]))
        top, products = whole[0], whole[1]
        inner = np.triu(products, 1) + np.diag(np.where(tau == 0, 1, 1 / np.where(tau == 0, 1, tau)))
        signs = np.where(beta == 0, 1, beta / np.where(beta == 0, 1, np.abs(beta))).astype(dtype)
        right = np.linalg.solve(inner, np.tril(top).conj().T) * signs
        team.on_rows(x, 2 * n * n, 2)
        rows.multiply(x, -right.astype(dtype))
        for i in range(first):
            x[i, team.offset + i] += signs[team.offset + i]
        r = (np.triu(top, 1) + np.diag(beta)) * signs.conj()[:, None]
        return Factors(x, r.astype(dtype), Info(self.name))


def _reflect(team: Team, x: arrays.Array, j: int, tau: np.ndarray, beta: np.ndarray) -> None:
    """Makes column j beta at row j and reflects the columns after it; v takes the place of the column."""
    xp, n, count = arrays.namespace(x), x.shape[1], x.shape[0]
    low = min(count, max(0, j - team.offset))
    owner = 0 <= j - team.offset < count
    v = x[low:, j]
    below = v[1:] if owner else v
    alpha = arrays.to_host(v[:1])[0] if owner else 0.0
    squares = float(arrays.to_host(xp.asarray(xp.sum(abs(below) ** 2))).real) if below.shape[0] else 0.0
    team.on_rows(x[:, :1], 2, 1)
    first, square = team.total(np.array([alpha, squares], tau.dtype))
    size = float(np.sqrt(abs(first) ** 2 + square.real))
    if size == 0.0:
        return
    beta[j] = -(first / abs(first) if first != 0 else 1) * size
    head = first - beta[j]
    tau[j] = 2.0 / (abs(head) ** 2 + square.real)
    if owner:
        x[low, j] = head.item()
    if j + 1 == n:
        return
    # v as one column of its own: columns of x are strided.
    column = xp.asarray(x[low:, j : j + 1], copy=True)
    rest = x[low:, j + 1 :]
    products = rows.inner(column, rest) if column.shape[0] else np.zeros((1, n - j - 1), tau.dtype)
    team.on_rows(rest, 4 * (n - j - 1), 3)
    products = team.total(products) * tau[j]
    factor = rows.like(products.astype(tau.dtype), x)
    start = 0
    for piece in rows.pieces(rest):
        piece -= column[start : start + piece.shape[0]] * factor
        start += piece.shape[0]
