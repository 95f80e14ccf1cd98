"""A mesh torn into floating subdomains, with the rows that glue them and hold the boundary: the setting of Total FETI.

Minimise ½ uᵀKu − fᵀu with B u = 0: K is block diagonal, B signed Boolean. A node in s subdomains gives a chain of s − 1 rows for each of
its unknowns, so that no row follows from others; a held unknown gives one row more. Every subdomain floats, so that its kernel is known.

Total FETI — an easier implementable variant of the FETI method for numerical solution of elliptic PDE, 2006.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from armillary.errors import InputError, unknown

from .meshes import Mesh, checked_parts, grid
from .physics import PHYSICS, Physics, fixing_nodes, kernel, load, stiffness, unknowns


@dataclass(frozen=True)
class Subdomain:
    """One part: K (singular), the regularised K, f, B's columns here without empty rows, and which multipliers those rows are.

    `kernel` has orthonormal columns; `nodes` are the mesh's numbers of its nodes.
    """

    nodes: np.ndarray
    k: sparse.csc_array
    k_reg: sparse.csc_array
    f: np.ndarray
    b: sparse.csr_array
    multipliers: np.ndarray
    kernel: np.ndarray


@dataclass(frozen=True)
class Decomposition:
    """All subdomains; `multipliers` counts the rows of B. `mesh`, `held` (nodes), `coefficient` and `physics` say what was torn."""

    mesh: Mesh
    physics: Physics
    parts: np.ndarray
    held: np.ndarray
    coefficient: np.ndarray
    subdomains: tuple[Subdomain, ...]
    multipliers: int

    def whole(self) -> tuple[sparse.csc_array, np.ndarray, np.ndarray]:
        """Returns K, f and the free unknowns of the problem that was not torn: for a direct solution."""
        k = stiffness(self.mesh.points, self.mesh.cells, self.physics, self.coefficient)
        f = load(self.mesh.points, self.mesh.cells, self.physics)
        size = unknowns(self.physics, self.mesh.dimension)
        fixed = (size * self.held[:, None] + np.arange(size)).ravel()
        return k, f, np.setdiff1d(np.arange(len(f)), fixed)


def decompose(
    mesh: Mesh, parts: Any, physics: Physics = "heat", *, coefficient: Any = None, held: Any = None, only: int | None = None
) -> Decomposition:
    """Tears `mesh` into `parts` (a number for recursive coordinate bisection, or the part of each cell).

    `coefficient` is conductivity or Young's modulus of each cell (1 without it); `held` are the nodes kept at zero (without it those with
    the least first coordinate). With `only`, matrices of that subdomain alone are made, the others are left out.
    """
    if physics not in PHYSICS:
        raise unknown("physics", str(physics), PHYSICS)
    part = checked_parts(mesh, parts)
    weight = np.ones(len(mesh.cells)) if coefficient is None else np.asarray(coefficient, dtype=np.float64)
    if weight.shape != (len(mesh.cells),) or not (np.isfinite(weight) & (weight > 0)).all():
        raise InputError(
            f"found shape {weight.shape}; expected one positive number for each of {len(mesh.cells)} cells", where="coefficient"
        )
    still = _held(mesh, held)
    size = unknowns(physics, mesh.dimension)
    count = int(part.max()) + 1
    # Every (node, subdomain) once, by node: copies of one node follow one another.
    pairs = np.unique(mesh.cells * count + part[:, None])
    node, owner = pairs // count, pairs % count
    chained = np.flatnonzero(node[1:] == node[:-1])
    first_copy = np.searchsorted(node, still)
    # A row for each link of a chain (+1 on its copy, −1 on the next) and one for each held node; then once for each unknown of a node.
    copies = np.concatenate((chained, chained + 1, first_copy))
    rows = np.concatenate((np.arange(len(chained)), np.arange(len(chained)), len(chained) + np.arange(len(still))))
    signs = np.concatenate((np.ones(len(chained)), -np.ones(len(chained)), np.ones(len(still))))
    by_owner = np.argsort(owner[copies], kind="stable")
    cuts = np.searchsorted(owner[copies][by_owner], np.arange(count + 1))
    cells_by_part = np.argsort(part, kind="stable")
    cell_cuts = np.searchsorted(part[cells_by_part], np.arange(count + 1))
    found = []
    for s in range(count) if only is None else (only,):
        cells = cells_by_part[cell_cuts[s] : cell_cuts[s + 1]]
        nodes, local = np.unique(mesh.cells[cells], return_inverse=True)
        mine = by_owner[cuts[s] : cuts[s + 1]]
        at = size * np.searchsorted(nodes, node[copies[mine]])[:, None] + np.arange(size)
        glue = _glue(at.ravel(), (size * rows[mine][:, None] + np.arange(size)).ravel(), np.repeat(signs[mine], size), size * len(nodes))
        local_cells = local.reshape(mesh.cells[cells].shape)
        found.append(_subdomain(mesh.points[nodes], nodes, local_cells, physics, weight[cells], *glue))
    return Decomposition(mesh, physics, part, still, weight, tuple(found), size * (len(chained) + len(still)))


def _held(mesh: Mesh, held: Any) -> np.ndarray:
    used = np.unique(mesh.cells)
    if held is None:
        first = mesh.points[used, 0]
        return used[first <= first.min() + 1e-12 * max(1.0, float(np.ptp(first)))]
    found = np.unique(np.asarray(held))
    if not len(found) or found.dtype.kind not in "iu" or not np.isin(found, used).all():
        raise InputError("expected at least one node, each a corner of some cell", where="held nodes")
    return found.astype(np.int64)


def _glue(columns: np.ndarray, rows: np.ndarray, signs: np.ndarray, n: int) -> tuple[sparse.csr_array, np.ndarray]:
    multipliers, local = np.unique(rows, return_inverse=True)
    return sparse.csr_array((signs, (local, columns)), shape=(len(multipliers), n)), multipliers


def _subdomain(
    points: np.ndarray, nodes: np.ndarray, cells: np.ndarray, physics: Physics, weight: np.ndarray, b: sparse.csr_array, mine: np.ndarray
) -> Subdomain:
    k, f = stiffness(points, cells, physics, weight), load(points, cells, physics)
    modes = kernel(points, physics)
    k_reg = regularised(k, modes, fixing_nodes(points, physics), unknowns(physics, points.shape[1]))
    return Subdomain(nodes, k, k_reg, f, b, mine, np.linalg.qr(modes)[0])


def regularised(k: sparse.csc_array, modes: np.ndarray, nodes: np.ndarray, size: int) -> sparse.csc_array:
    """Returns K + ρ N Nᵀ, whose inverse is a generalised one of K: ρ is K's largest diagonal entry, N the kernel on the fixing nodes,
    orthonormal.

    Cholesky decomposition with fixing nodes to stable computation of a generalized inverse of the stiffness matrix of a floating
    structure, Int. J. Numer. Methods Eng. 2011.
    """
    at = np.sort((size * nodes[:, None] + np.arange(size)).ravel())
    n, r = np.linalg.qr(modes[at])
    if abs(np.diagonal(r)).min() <= 1e-10 * abs(np.diagonal(r)).max():
        raise InputError("the fixing nodes do not hold the subdomain; expected nodes that do not lie on one line", where="regularisation")
    block = k.diagonal().max() * (n @ n.T)
    rows, columns = np.repeat(at, len(at)), np.tile(at, len(at))
    entries = k.tocoo()
    values = np.concatenate((entries.data, ((block + block.T) / 2).ravel()))
    # Put together entry by entry: a sum of sparse matrices would drop zeros, and with them the pattern that all values share.
    where: Any = np.concatenate((entries.coords[0], rows)), np.concatenate((entries.coords[1], columns))
    return sparse.coo_array((values, where), shape=k.shape).tocsc()


def inside(physics: Physics, dimension: int, side: int) -> tuple[sparse.csc_array, sparse.csr_array]:
    """Returns regularised K and B of the middle one of 3×3(×3) equal subdomains with `side` cells along each: what a large problem mostly
    has.
    """
    mesh = grid(*(side,) * dimension)
    k = stiffness(mesh.points, mesh.cells, physics, np.ones(len(mesh.cells)))
    size = unknowns(physics, dimension)
    k_reg = regularised(k, kernel(mesh.points, physics), fixing_nodes(mesh.points, physics), size)
    place = np.round(mesh.points * side).astype(np.int64)
    # −1, 0 or 1 along each axis: which neighbours a node is shared with. Its copies are chained in the order of their subdomains.
    touches = (place == side).astype(np.int64) - (place == 0)
    nodes, signs = [], []
    for node in np.flatnonzero(touches.any(axis=1)):
        sharing = sorted(itertools.product(*((0,) if t == 0 else (min(t, 0), max(t, 0)) for t in touches[node].tolist())))
        own = sharing.index((0,) * dimension)
        links = [-1.0] * (own > 0) + [1.0] * (own < len(sharing) - 1)
        nodes += [node] * len(links)
        signs += links
    columns = (size * np.array(nodes)[:, None] + np.arange(size)).ravel()
    m = len(columns)
    b = sparse.csr_array((np.repeat(signs, size), (np.arange(m), columns)), shape=(m, k.shape[0]))
    return k_reg, b
