"""Meshes of triangles and tetrahedra: the unit square and cube, files that meshio reads, and how to cut them into parts."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from armillary.errors import InputError

from ...mesh_files import read_meshio

#: What meshio calls the cells that are taken, by dimension of the space, and those that may stand beside them (boundaries).
CELLS = {2: "triangle", 3: "tetra"}
_BOUNDARIES = {2: ("line", "vertex"), 3: ("triangle", "line", "vertex")}
SUFFIXES = (".msh", ".vtk", ".vtu", ".inp")


@dataclass(frozen=True)
class Mesh:
    """`points` float64[nodes, d] and `cells` int64[cells, d + 1]: triangles in the plane or tetrahedra in space."""

    points: np.ndarray
    cells: np.ndarray

    @property
    def dimension(self) -> int:
        """2 or 3."""
        return int(self.points.shape[1])

    @property
    def centres(self) -> np.ndarray:
        """The middle of each cell, float64[cells, d]."""
        return self.points[self.cells].mean(axis=1)


def checked_mesh(points: Any, cells: Any, where: str = "mesh") -> Mesh:
    """Returns the mesh of these arrays, refused unless points are finite, indices are there and no cell is flat."""
    points, cells = np.asarray(points), np.asarray(cells)
    if points.ndim != 2 or points.shape[1] not in CELLS or points.dtype.kind not in "biuf":
        raise InputError(f"found points of shape {points.shape}; expected rows of 2 or 3 coordinates", where=where)
    d = points.shape[1]
    if cells.ndim != 2 or cells.shape[1] != d + 1 or cells.dtype.kind not in "iu" or not len(cells):
        raise InputError(f"found cells of shape {cells.shape} ({cells.dtype}); expected rows of {d + 1} node numbers", where=where)
    if not np.isfinite(points).all():
        raise InputError("found infinities or NaNs among the coordinates", where=where)
    if cells.min() < 0 or cells.max() >= len(points):
        raise InputError(f"cells name nodes {cells.min()} to {cells.max()}; expected 0 to {len(points) - 1}", where=where)
    mesh = Mesh(points.astype(np.float64), cells.astype(np.int64))
    edges = mesh.points[mesh.cells[:, 1:]] - mesh.points[mesh.cells[:, :1]]
    flat = abs(np.linalg.det(edges)) <= 1e-14 * abs(edges).max(axis=(1, 2)) ** d
    if flat.any():
        raise InputError(f"cell {int(flat.argmax())} has no volume; expected cells that are not flat", where=where)
    return mesh


def grid(*cells: int) -> Mesh:
    """Returns the unit square or cube as a grid of cells, each cut into 2 triangles or 6 tetrahedra along its long diagonal."""
    if len(cells) not in CELLS or min(cells) < 1:
        raise InputError(f"found {cells}; expected 2 or 3 numbers of cells, each at least 1", where="grid")
    d = len(cells)
    axes = [np.linspace(0.0, 1.0, n + 1) for n in cells]
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    strides = np.array([int(np.prod([n + 1 for n in cells[i + 1 :]])) for i in range(d)])
    corner = np.stack([axis.ravel() for axis in np.meshgrid(*(np.arange(n) for n in cells), indexing="ij")], axis=1) @ strides
    # Kuhn's simplices: from a cell's lowest corner to its highest, one axis after the other in every order.
    simplices = []
    for order in itertools.permutations(range(d)):
        path = np.concatenate(([0], np.cumsum(strides[list(order)])))
        simplices.append(corner[:, None] + path[None, :])
    return Mesh(points, np.stack(simplices, axis=1).reshape(-1, d + 1))


def grid_parts(cells: tuple[int, ...], parts: tuple[int, ...]) -> np.ndarray:
    """Returns the part of each cell of `grid(*cells)` in blocks of a coarser grid."""
    if len(parts) != len(cells) or any(n % p for n, p in zip(cells, parts)):
        raise InputError(f"found {parts} parts of {cells} cells; expected divisors, one for each axis", where="grid_parts")
    index = np.meshgrid(*(np.arange(n) * p // n for n, p in zip(cells, parts)), indexing="ij")
    part = np.ravel_multi_index(tuple(axis.ravel() for axis in index), parts)
    return np.repeat(part, 2 if len(cells) == 2 else 6)


def bisected(mesh: Mesh, parts: int) -> np.ndarray:
    """Returns the part of each cell by recursive coordinate bisection: halve along the longest extent of the centres until there are
    enough.
    """
    if not 1 <= parts <= len(mesh.cells):
        raise InputError(f"found {parts}; expected 1 to {len(mesh.cells)}, the number of cells", where="parts")
    centres, found = mesh.centres, np.zeros(len(mesh.cells), np.int64)
    pending = [(np.arange(len(mesh.cells)), parts, 0)]
    while pending:
        cells, share, first = pending.pop()
        if share == 1:
            found[cells] = first
            continue
        axis = int(np.ptp(centres[cells], axis=0).argmax())
        ordered = cells[np.argsort(centres[cells, axis], kind="stable")]
        low = share // 2
        cut = len(ordered) * low // share
        pending += [(ordered[:cut], low, first), (ordered[cut:], share - low, first + low)]
    return found


def checked_parts(mesh: Mesh, parts: Any) -> np.ndarray:
    """Returns the part of each cell, from 0 and without gaps, each part connected through faces: one that is not becomes several.

    `parts` is a number (recursive coordinate bisection) or a vector with an entry for each cell.
    """
    if isinstance(parts, int | np.integer):
        vector = bisected(mesh, int(parts))
    else:
        vector = np.asarray(parts)
        if vector.shape != (len(mesh.cells),):
            raise InputError(f"found shape {vector.shape}; expected one entry for each of {len(mesh.cells)} cells", where="partition")
        if vector.dtype.kind not in "iu" or vector.min() < 0:
            raise InputError(f"found {vector.dtype} from {vector.min()}; expected whole numbers from 0", where="partition")
    left, right = _neighbours(mesh)
    inside = vector[left] == vector[right]
    n = len(mesh.cells)
    joined = sparse.coo_array((np.ones(int(inside.sum()), np.int8), (left[inside], right[inside])), shape=(n, n))
    _, component = connected_components(joined.tocsr(), directed=False)
    # Components in the order of their part, so that a connected partition keeps its numbers.
    firsts = np.unique(component, return_index=True)[1]
    rank = np.argsort(np.argsort(vector[firsts], kind="stable"), kind="stable")
    return rank[component]


def _neighbours(mesh: Mesh) -> tuple[np.ndarray, np.ndarray]:
    """Returns pairs of cells that share a face (an edge in the plane)."""
    d = mesh.dimension
    faces = np.sort(np.concatenate([np.delete(mesh.cells, i, axis=1) for i in range(d + 1)]), axis=1)
    cell = np.tile(np.arange(len(mesh.cells)), d + 1)
    order = np.lexsort(faces.T)
    faces, cell = faces[order], cell[order]
    same = (faces[1:] == faces[:-1]).all(axis=1)
    return cell[:-1][same], cell[1:][same]


def read_mesh(path: str | os.PathLike[str]) -> Mesh:
    """Reads the triangles or tetrahedra in a file that meshio reads (.msh, .vtk, .vtu, .inp)."""
    path = Path(path)
    return from_meshio(read_meshio(path, SUFFIXES), str(path))


def from_meshio(found: Any, where: str = "mesh") -> Mesh:
    """Returns a meshio mesh: its tetrahedra, or its triangles where they all lie in the plane z = const; unsupported cells are refused by
    name.
    """
    points = np.asarray(found.points, dtype=np.float64)
    kinds = {block.type for block in found.cells}
    d = 3 if CELLS[3] in kinds else 2
    bad = sorted(kinds - {CELLS[d], *_BOUNDARIES[d]})
    if bad or CELLS[d] not in kinds:
        raise InputError(f"found cells {', '.join(bad or sorted(kinds)) or 'none'}; expected triangle or tetra", where=where)
    cells = np.concatenate([np.asarray(block.data) for block in found.cells if block.type == CELLS[d]])
    if d == 2 and points.ndim == 2 and points.shape[1] == 3:
        used = points[np.unique(cells)] if cells.size and cells.min() >= 0 and cells.max() < len(points) else points
        if np.ptp(used[:, 2]) > 1e-12 * max(1.0, float(abs(used).max())):
            raise InputError("triangles leave the plane z = const; expected a flat mesh or tetrahedra", where=where)
        points = points[:, :2]
    return checked_mesh(points, cells, where)
