"""Projected preconditioned conjugate gradients for the interface problem of FETI, and its operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from armillary import arrays
from armillary.errors import InputError

from ..complement.assembler import SchurAssembler
from ..complement.method import moved
from .decomposition import Decomposition, Subdomain

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

Apply = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class LocalDual:
    """F_i of one subdomain: its assembled matrix (host or device), or None to go through the factor; `multipliers` are its rows of λ."""

    assembler: SchurAssembler
    multipliers: np.ndarray
    matrix: arrays.Array | None

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Returns F_i x for the subdomain's own multipliers, on the host."""
        if self.matrix is None:
            b = self.assembler.b
            return b @ self.assembler.factor.solve(b.T @ x)
        if isinstance(self.matrix, np.ndarray):
            return self.matrix @ x
        return arrays.to_host(self.matrix @ moved(x, self.matrix))


class DualOperator:
    """F = Σ B_i K_i⁺ B_iᵀ over all multipliers."""

    def __init__(self, locals_: Sequence[LocalDual], multipliers: int) -> None:
        self.locals, self.multipliers = tuple(locals_), multipliers

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Returns F x."""
        y = np.zeros(self.multipliers)
        for local in self.locals:
            y[local.multipliers] += local.apply(x[local.multipliers])
        return y

    def operator(self) -> LinearOperator:
        """Returns F as SciPy's operator."""
        from scipy.sparse.linalg import LinearOperator

        return LinearOperator((self.multipliers,) * 2, matvec=self, rmatvec=self, dtype=np.float64)


class Projector:
    """P = I − G (GᵀG)⁻¹ Gᵀ for G = B R projects λ to where the subdomains' kernels are in balance."""

    def __init__(self, problem: Decomposition) -> None:
        blocks = [_scattered(s.multipliers, s.b @ s.kernel, problem.multipliers) for s in problem.subdomains]
        self.g = sparse.csc_array(sparse.hstack(blocks, format="csc"))
        self._coarse = splu(sparse.csc_array(self.g.T @ self.g))

    def coarse(self, e: np.ndarray) -> np.ndarray:
        """Returns (GᵀG)⁻¹ e."""
        return self._coarse.solve(e)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Returns P x."""
        return x - self.g @ self.coarse(self.g.T @ x)


def _scattered(rows: np.ndarray, block: np.ndarray, height: int) -> sparse.csc_array:
    width = block.shape[1]
    where = np.repeat(rows, width), np.tile(np.arange(width), len(rows))
    return sparse.csc_array((block.ravel(), where), shape=(height, width))


def lumped(problem: Decomposition, scaled: bool = True) -> Apply:
    """Returns the lumped preconditioner B K Bᵀ; with `scaled` A⁻¹ B D⁻¹ K D⁻¹ Bᵀ A⁻¹, where D = diag K and A = B D⁻¹ Bᵀ.

    Scaling shares a multiplier among the copies of its node by their stiffness, so that neither long chains of copies nor jumps of the
    coefficient slow it down. A couples the copies of one node only.
    """
    shape = (problem.multipliers,) * 2
    middle, joint = [], []
    for s in problem.subdomains:
        weighted = s.b @ sparse.diags_array(1 / s.k.diagonal()) if scaled else s.b
        middle.append(_spread(weighted @ s.k @ weighted.T, s.multipliers, shape))
        joint.append(_spread(weighted @ s.b.T, s.multipliers, shape))
    whole = _summed(middle, shape)
    if not scaled:
        return lambda x: whole @ x
    inner = splu(sparse.csc_array(_summed(joint, shape)), permc_spec="MMD_AT_PLUS_A")
    return lambda x: inner.solve(whole @ inner.solve(x))


def _spread(local: Any, multipliers: np.ndarray, shape: tuple[int, int]) -> sparse.coo_array:
    entries = sparse.coo_array(local)
    return sparse.coo_array((entries.data, tuple(multipliers[axis] for axis in entries.coords)), shape=shape)


def _summed(pieces: Sequence[sparse.coo_array], shape: tuple[int, int]) -> sparse.csr_array:
    rows, columns = (np.concatenate([piece.coords[axis] for piece in pieces]) for axis in (0, 1))
    return sparse.coo_array((np.concatenate([piece.data for piece in pieces]), (rows, columns)), shape=shape).tocsr()


@dataclass(frozen=True)
class Found:
    """λ, the kernels' share α, iterations, and the last residual over the first."""

    multipliers: np.ndarray
    amplitudes: np.ndarray
    iterations: int
    residual: float


def pcpg(dual: Apply, d: np.ndarray, e: np.ndarray, projector: Projector, precondition: Apply, tolerance: float, most: int) -> Found:
    """Returns λ with P F λ = P d and Gᵀλ = e: conjugate gradients in the projected space until the residual there has fallen by
    `tolerance`.
    """
    x = projector.g @ projector.coarse(e)
    r = d - dual(x)
    w = projector(r)
    first = float(np.linalg.norm(w))
    norm, count, p, before = first, 0, np.zeros_like(x), 1.0
    while norm > tolerance * max(first, float(np.finfo(np.float64).tiny)) and first > 0.0:
        if count == most:
            raise InputError(f"the residual has fallen by {norm / first:.3g} after {most} iterations; expected {tolerance:g}", where="PCPG")
        z = projector(precondition(w))
        now = float(z @ w)
        p = z + (now / before if count else 0.0) * p
        q = dual(p)
        step = now / float(p @ q)
        x += step * p
        r -= step * q
        w = projector(r)
        norm, before, count = float(np.linalg.norm(w)), now, count + 1
    return Found(x, -projector.coarse(projector.g.T @ r), count, norm / first if first else 0.0)


def rebuilt(problem: Decomposition, locals_: Sequence[LocalDual], found: Found) -> np.ndarray:
    """Returns u of the whole mesh (by nodes): K⁺(f − Bᵀλ) + R α of each subdomain, the mean where copies meet."""
    size = problem.subdomains[0].k.shape[0] // len(problem.subdomains[0].nodes)
    total, copies, at = np.zeros((len(problem.mesh.points), size)), np.zeros(len(problem.mesh.points)), 0
    for s, local in zip(problem.subdomains, locals_):
        modes = s.kernel.shape[1]
        u = local.assembler.factor.solve(s.f - s.b.T @ found.multipliers[s.multipliers]) + s.kernel @ found.amplitudes[at : at + modes]
        at += modes
        total[s.nodes] += u.reshape(-1, size)
        copies[s.nodes] += 1
    return (total / np.maximum(copies, 1)[:, None]).reshape(-1) if size > 1 else (total[:, 0] / np.maximum(copies, 1))


def right_sides(problem: Decomposition, locals_: Sequence[LocalDual]) -> tuple[np.ndarray, np.ndarray]:
    """Returns d = B K⁺ f and e = Rᵀ f."""
    d = np.zeros(problem.multipliers)
    for s, local in zip(problem.subdomains, locals_):
        d[s.multipliers] += s.b @ local.assembler.factor.solve(s.f)
    return d, np.concatenate([s.kernel.T @ s.f for s in problem.subdomains])


def subdomain_assembler(s: Subdomain, method: object, like: arrays.Array = None) -> SchurAssembler:
    """Returns the assembler of a subdomain's F."""
    return SchurAssembler(s.k_reg, s.b, method, like=like)  # type: ignore[arg-type]
