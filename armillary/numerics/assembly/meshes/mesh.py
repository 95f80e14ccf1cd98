"""Meshes as arrays, checked before anything is computed from them, and read from the files that meshio knows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line

from ...mesh_files import read_meshio
from ..elements.elements import ELEMENTS, Element, element_of, tables

SUFFIXES = (".msh", ".vtk", ".vtu", ".inp", ".xdmf")


@dataclass(frozen=True)
class Mesh:
    """`points` float64[nodes, d] and `cells` int32[elements, a] of one kind."""

    points: np.ndarray
    cells: np.ndarray
    element: Element

    @property
    def elements(self) -> int:
        """The number of elements."""
        return len(self.cells)


def checked(points: Any, cells: Any, element: str = "P1", *, allow_inverted: bool = False, where: str | None = None) -> Mesh:
    """Returns the mesh of these arrays; it is refused unless coordinates are finite, nodes exist and no element is flat or inside out.

    With `allow_inverted` such elements stay: an inverted one counts by its absolute volume, a flat one not at all.
    """
    points, cells = np.asarray(points), np.asarray(cells)
    if points.ndim != 2 or points.shape[1] not in (2, 3) or points.dtype.kind not in "iuf":
        raise InputError(f"found points of shape {points.shape} ({points.dtype}); expected rows of 2 or 3 coordinates", where=where)
    if cells.ndim != 2 or cells.dtype.kind not in "iu" or not len(cells):
        raise InputError(f"found cells of shape {cells.shape} ({cells.dtype}); expected rows of node numbers", where=where)
    if len(points) >= 2**31 - 1:
        raise InputError(f"found {len(points)} nodes; expected fewer than 2^31", where=where)
    kind = element_of(element, points.shape[1], cells.shape[1])
    bad = np.argwhere(~np.isfinite(points))
    if len(bad):
        raise InputError(f"node {bad[0][0]}: found coordinate {points[tuple(bad[0])]}; expected finite numbers", where=where)
    if int(cells.min()) < 0 or int(cells.max()) >= len(points):
        e = int(np.argmax(((cells < 0) | (cells >= len(points))).any(axis=1)))
        found = int(cells[e].max()) if int(cells[e].max()) >= len(points) else int(cells[e].min())
        raise InputError(f"element {e}: found node {found}; expected 0 to {len(points) - 1}", where=where)
    mesh = Mesh(np.ascontiguousarray(points, np.float64), np.ascontiguousarray(cells, np.int32), kind)
    if not allow_inverted:
        _, slope, _, _ = tables(kind, 1)
        e, det, flat = _first_flat(mesh, slope)
        if e >= 0:
            what = "no volume" if flat else "its nodes inside out"
            raise InputError(f"element {e} has {what} (Jacobian {det:.3g}); expected a positive one (or allow_inverted)", where=where)
    return mesh


def _first_flat(mesh: Mesh, slope: np.ndarray) -> tuple[int, float, bool]:
    """Returns the first element whose Jacobian is not positive at a point of integration, its determinant there, and whether it is flat.

    Flat is a determinant within roundoff (1e-14) of the element's extent to the power d. (-1, 0, False) where all are sound.
    """
    for start in range(0, len(mesh.cells), 1 << 16):
        corners = mesh.points[mesh.cells[start : start + (1 << 16)]]
        limit = 1e-14 * np.ptp(corners, axis=1).max(axis=1) ** mesh.element.dimension
        for at in slope:
            det = determinants(np.einsum("nai,aj->nij", corners, at))
            bad = det <= limit
            if bad.any():
                e = int(bad.argmax())
                return start + e, float(det[e]), bool(abs(det[e]) <= limit[e])
    return -1, 0.0, False


def determinants(j: np.ndarray) -> np.ndarray:
    """Returns the determinants of float64[n, d, d], d = 2 or 3."""
    if j.shape[1] == 2:
        return j[:, 0, 0] * j[:, 1, 1] - j[:, 0, 1] * j[:, 1, 0]
    return np.einsum("ni,ni->n", j[:, 0], np.cross(j[:, 1], j[:, 2]))


def read_mesh(path: Path | str, *, allow_inverted: bool = False) -> Mesh:
    """Reads the mesh in a file that meshio reads (.msh 2.2 and 4.1, .vtk, .vtu, .inp, .xdmf).

    Of its cells those of the highest dimension, which must be of one kind; lines and vertices beside them are boundaries and left out. A
    plane mesh loses its third coordinate. Inverted simplices are turned round, as files number them either way.
    """
    path = Path(path)
    found = read_meshio(path, SUFFIXES)
    blocks: dict[str, list[np.ndarray]] = {}
    for block in found.cells:
        blocks.setdefault(str(block.type), []).append(np.asarray(block.data))
    known = {name: parts for name, parts in blocks.items() if name in ELEMENTS}
    dimension = max((ELEMENTS[name].dimension for name in known), default=0)
    top = [name for name in known if ELEMENTS[name].dimension == dimension]
    others = [name for name in blocks if name not in ELEMENTS and not name.startswith(("line", "vertex"))]
    if others or not top:
        what = ", ".join(one_line(name, 40) for name in (others or blocks)) or "no cells"
        raise InputError(f"found cells {what}; expected one of {', '.join(ELEMENTS)}", where=str(path))
    if len(top) > 1:
        raise InputError(f"found mixed cells {', '.join(top)}; expected one kind (give arrays by kind to Assembler)", where=str(path))
    element = ELEMENTS[top[0]]
    points, cells = np.asarray(found.points), np.concatenate(known[top[0]])
    if points.ndim != 2 or points.shape[1] < dimension:
        raise InputError(f"found points of shape {points.shape}; expected {dimension} coordinates", where=str(path))
    if dimension == 2 and points.shape[1] == 3 and len(points):
        if np.ptp(points[:, 2]) > 1e-12 * max(np.ptp(points[:, 0]), np.ptp(points[:, 1])):
            raise InputError("found a surface in space; expected a mesh in the plane z = constant", where=str(path))
        points = points[:, :2]
    mesh = checked(points, cells, element.name, allow_inverted=True, where=str(path))
    mesh = oriented(mesh) if element.simplex else mesh
    return mesh if allow_inverted else checked(mesh.points, mesh.cells, element.name, where=str(path))


def oriented(mesh: Mesh) -> Mesh:
    """Returns the same mesh of simplices, each numbered so that its Jacobian at the corners is positive."""
    d = mesh.element.dimension
    corners = mesh.points[mesh.cells[:, : d + 1]]
    wrong = np.linalg.det(corners[:, 1:] - corners[:, :1]) < 0
    if not wrong.any():
        return mesh
    cells = mesh.cells.copy()
    # Exchanging the first two corners exchanges the middles of the edges at them.
    swap = {3: (1, 0, 2), 6: (1, 0, 2, 3, 5, 4), 4: (1, 0, 2, 3), 10: (1, 0, 2, 3, 4, 6, 5, 8, 7, 9)}[cells.shape[1]]
    cells[wrong] = cells[wrong][:, list(swap)]
    return Mesh(mesh.points, cells, mesh.element)


def quadratic(mesh: Mesh) -> Mesh:
    """Returns the mesh of linear simplices with a further node in the middle of every edge."""
    from ..elements.quadrature import EDGES

    pairs = np.array(EDGES[mesh.element.dimension])
    ends = np.sort(mesh.cells[:, pairs].reshape(-1, 2), axis=1).astype(np.int64)
    _, first, inverse = np.unique(ends[:, 0] * len(mesh.points) + ends[:, 1], return_index=True, return_inverse=True)
    middles = mesh.points[ends[first]].mean(axis=1)
    cells = np.concatenate([mesh.cells, (len(mesh.points) + inverse.reshape(len(mesh.cells), -1)).astype(np.int32)], axis=1)
    element = ELEMENTS["triangle6" if mesh.element.dimension == 2 else "tetra10"]
    return Mesh(np.concatenate([mesh.points, middles]), np.ascontiguousarray(cells), element)
