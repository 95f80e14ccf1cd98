"""Randomized CholeskyQR: the QR of a small random sketch of A is a preconditioner so good that one CholeskyQR suffices.

Every row of A is added, with a random sign, to `nonzeros` of 4n rows of a sketch; R₀ of the sketch makes A R₀⁻¹ nearly orthonormal. Two
allreduces, the first of 4n² words.

Balabanov: Randomized Cholesky QR factorizations, 2022; Higgins, Szyld, Boman, Yamazaki: Analysis of randomized Householder-Cholesky QR
factorization with multisketching, 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import numpy as np

from armillary import arrays
from armillary.parameters import parameter

from .factors.cholesky_passes import cholesky_passes
from .factors.method import Breakdown, Factors, Info, Method, Source
from .factors.triangles import Array, conditioned, phases
from .ranks import rows
from .ranks.team import Team
from .tsqr import host_qr


@dataclass(frozen=True)
class RandomizedCholQr(Method):
    """CholeskyQR preconditioned by a sparse-sign sketch."""

    name = "randomized-cholqr"

    oversampling: int = parameter(4, "the number of rows of the sketch, in units of n", range=(2, 64))
    nonzeros: int = parameter(8, "the number of rows of the sketch to which a row of A is added", range=(1, 64))
    seed: int = parameter(0, "the seed of the sketch, to which the rank is added", range=(0, 2**31 - 1))

    def factor(self, team: Team, source: Source) -> Factors:
        x, n = source.copy(), source.columns()
        height = self.oversampling * n
        rng = np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(self.seed, spawn_key=(team.rank,))))
        team.on_rows(x, 2 * self.nonzeros * n, 1)
        _, r = host_qr(team.total(_sketch(x, height, min(self.nonzeros, height), rng)))
        team.work(2 * height * n**2)
        r = r * phases(r).conj()[:, None]
        if not np.abs(np.diagonal(r)).all():
            raise Breakdown("the sketch is singular", int(np.flatnonzero(np.diagonal(r) == 0)[0]))
        (second,) = cholesky_passes(team, x, team.divide_and_gram(x, r), 1)
        return Factors(x, second @ r, Info(self.name, condition=conditioned(r)))


def _sketch(x: arrays.Array, height: int, nonzeros: int, rng: np.random.Generator) -> Array:
    """Returns S·x on the host, S of `height` rows with `nonzeros` entries ±1/√nonzeros in each column."""
    n, dtype = x.shape[1], rows.host_type(x)
    total = np.zeros((height, n), dtype)
    sparse = import_module("scipy.sparse")
    for piece in rows.pieces(x):
        count = piece.shape[0]
        # Where a row goes twice to the same place its signs add up: the sketch is as good, and no choice without repetition is needed.
        to = rng.integers(0, height, (nonzeros, count))
        signs = (rng.integers(0, 2, (nonzeros, count)) * 2 - 1).astype(dtype) / np.sqrt(np.asarray(nonzeros, dtype).real)
        if isinstance(piece, np.ndarray):
            places = to.ravel(), np.tile(np.arange(count), nonzeros)
            total += sparse.csr_array((signs.ravel(), places), shape=(height, count)) @ piece
        else:
            total += arrays.to_host(_scattered(piece, to, signs, height))
    return total


def _scattered(piece: arrays.Array, to: Array, signs: Array, height: int) -> arrays.Array:
    xp = arrays.namespace(piece)
    room = xp.zeros((height, piece.shape[1]), dtype=piece.dtype, device=arrays.device_of(piece))
    for where, sign in zip(to, signs):
        terms = piece * rows.like(sign, piece)[:, None]
        if arrays.kind_of(piece) == "torch":
            room.index_add_(0, rows.like(where, piece), terms)
        else:
            import_module("cupyx").scatter_add(room, rows.like(where, piece), terms)
    return room
