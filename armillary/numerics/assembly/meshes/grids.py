"""The shapes that mesh families are made of: grids, graded refinement by bisection, triangulations, fans, layers, and orders of nodes."""

from __future__ import annotations

import itertools

import numpy as np

from ..elements.elements import ELEMENTS
from .mesh import Mesh, oriented


def grid(cell: str, sides: tuple[int, ...]) -> Mesh:
    """Returns the unit square or cube in `sides` boxes along each axis, each one quad or hexahedron, two triangles or six tetrahedra."""
    d = len(sides)
    axes = [np.linspace(0, 1, n + 1) for n in sides]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, d)
    strides = np.cumprod([1, *(n + 1 for n in reversed(sides[1:]))])[::-1]
    corner = sum(np.arange(n).reshape([-1 if i == k else 1 for i in range(d)]) * strides[k] for k, n in enumerate(sides))
    corner = np.asarray(corner).reshape(-1, 1)
    if cell in ("quad", "hexahedron"):
        from ..elements.quadrature import CUBE, SQUARE

        offsets = ((SQUARE if d == 2 else CUBE) @ strides).astype(np.int64)
        cells = corner + offsets
    else:
        # Kuhn's division: one simplex for each order of the axes, along the same diagonal in every box.
        orders = itertools.permutations(range(d))
        blocks = [corner + np.cumsum([0, *(strides[axis] for axis in order)]) for order in orders]
        cells = np.stack(blocks, axis=1).reshape(-1, d + 1)
    mesh = Mesh(points, cells.astype(np.int32), ELEMENTS[cell])
    return oriented(mesh) if mesh.element.simplex else mesh


def jittered(mesh: Mesh, share: float, rng: np.random.Generator) -> Mesh:
    """Moves the inner nodes of a grid on [0,1]^d at random by up to `share` of a quarter of the shortest edge."""
    edges = np.linalg.norm(mesh.points[mesh.cells[:, 1]] - mesh.points[mesh.cells[:, 0]], axis=1)
    inner = np.all((mesh.points > 1e-12) & (mesh.points < 1 - 1e-12), axis=1, keepdims=True)
    move = rng.uniform(-1, 1, mesh.points.shape) * share * 0.25 * edges.min()
    return Mesh(mesh.points + move * inner, mesh.cells, mesh.element)


def bisected(mesh: Mesh, marked: np.ndarray) -> Mesh:
    """Halves simplices at bool[] `marked` at their longest edge, and all others that the edge belongs to; no node hangs.

    Edges are halved in one order for the whole mesh, the longest first, so that a face is cut alike from both sides.
    """
    d, n = mesh.element.dimension, len(mesh.points)
    pairs = np.array(list(itertools.combinations(range(d + 1), 2)))
    edges = np.sort(mesh.cells[:, pairs], axis=2).astype(np.int64)
    keys = edges[:, :, 0] * n + edges[:, :, 1]
    lengths = np.linalg.norm(mesh.points[edges[:, :, 0]] - mesh.points[edges[:, :, 1]], axis=2)
    longest = np.take_along_axis(keys, (lengths + 1e-9 * lengths.max() * (keys % 1009) / 1009).argmax(axis=1)[:, None], axis=1)[:, 0]
    chosen = np.unique(longest[marked])
    while True:
        # An element that loses any edge loses its longest first: angles stay bounded.
        hit = np.isin(keys, chosen).any(axis=1)
        more = np.union1d(chosen, longest[hit])
        if len(more) == len(chosen):
            break
        chosen = more
    ends = np.stack([chosen // n, chosen % n], axis=1)
    span = np.linalg.norm(mesh.points[ends[:, 0]] - mesh.points[ends[:, 1]], axis=1)
    rank = np.empty(len(chosen), np.int64)
    rank[np.lexsort((chosen, span))] = np.arange(len(chosen))
    points = np.concatenate([mesh.points, mesh.points[ends].mean(axis=1)])
    cells = mesh.cells.astype(np.int64)
    while True:
        edges = np.sort(cells[:, pairs], axis=2)
        keys = np.where(edges[:, :, 1] < n, edges[:, :, 0] * n + edges[:, :, 1], -1)
        at = np.minimum(np.searchsorted(chosen, keys), len(chosen) - 1)
        order = np.where(chosen[at] == keys, rank[at], -1)
        first = order.argmax(axis=1)
        cut = order.max(axis=1) >= 0
        if not cut.any():
            break
        middle = n + np.take_along_axis(at, first[:, None], axis=1)[cut, 0]
        ends = pairs[first[cut]]
        left, right = cells[cut].copy(), cells[cut].copy()
        left[np.arange(len(left)), ends[:, 1]] = middle
        right[np.arange(len(right)), ends[:, 0]] = middle
        cells = np.concatenate([cells[~cut], left, right])
    return oriented(Mesh(points, cells.astype(np.int32), mesh.element))


def graded(mesh: Mesh, distance: object, elements: int, grading: float) -> Mesh:
    """Bisects where `distance(centres)` is small until there are enough elements; the smallest are `grading` times smaller in size."""
    d = mesh.element.dimension
    while mesh.elements < elements:
        corners = mesh.points[mesh.cells]
        size = np.abs(np.linalg.det(corners[:, 1:] - corners[:, :1])) ** (1 / d)
        near = distance(corners.mean(axis=1))  # type: ignore[operator]
        wanted = np.maximum(near, near.max() / grading)
        score = size / wanted
        mesh = bisected(mesh, score >= np.quantile(score, 0.75))
    return mesh


def triangulated(points: np.ndarray) -> Mesh:
    """Returns the Delaunay triangulation of points in the plane or in space, without flat simplices."""
    from scipy.spatial import Delaunay

    cells = Delaunay(points).simplices
    d = points.shape[1]
    edges = points[cells[:, 1:]] - points[cells[:, :1]]
    full = np.abs(np.linalg.det(edges)) > 1e-10 * np.abs(edges).max(axis=(1, 2)) ** d
    return oriented(Mesh(points, cells[full].astype(np.int32), ELEMENTS["triangle" if d == 2 else "tetra"]))


def fan(valence: int, dimension: int = 2, centre: float = 0.0) -> Mesh:
    """Returns one node with `valence` triangles round it, or with the tetrahedra over a triangulated sphere (about as many)."""
    if dimension == 2:
        angle = 2 * np.pi * np.arange(valence) / valence
        points = np.concatenate([[(0.0, 0.0)], np.stack([np.cos(angle), np.sin(angle)], axis=1)])
        rim = 1 + np.arange(valence)
        cells = np.stack([np.zeros(valence, np.int64), rim, np.roll(rim, -1)], axis=1)
        return Mesh(points + np.array((centre, 0.0)), cells.astype(np.int32), ELEMENTS["triangle"])
    from scipy.spatial import ConvexHull

    count = valence // 2 + 2
    turn = np.pi * (3 - np.sqrt(5)) * np.arange(count)
    height = 1 - 2 * (np.arange(count) + 0.5) / count
    radius = np.sqrt(1 - height**2)
    shell = np.stack([radius * np.cos(turn), radius * np.sin(turn), height], axis=1)
    faces = ConvexHull(shell).simplices
    cells = np.concatenate([np.zeros((len(faces), 1), np.int64), faces + 1], axis=1)
    points = np.concatenate([[(0.0, 0.0, 0.0)], shell]) + np.array((centre, 0.0, 0.0))
    return oriented(Mesh(points, cells.astype(np.int32), ELEMENTS["tetra"]))


def together(meshes: list[Mesh]) -> Mesh:
    """Joins meshes that share no node."""
    starts = np.cumsum([0, *(len(m.points) for m in meshes)])
    cells = np.concatenate([m.cells + start for m, start in zip(meshes, starts)])
    return Mesh(np.concatenate([m.points for m in meshes]), cells.astype(np.int32), meshes[0].element)


def renumbered(mesh: Mesh, new: np.ndarray, rng: np.random.Generator | None = None) -> Mesh:
    """Makes node i node `new[i]`; elements come in a random order, or without `rng` by their smallest node."""
    points = np.empty_like(mesh.points)
    points[new] = mesh.points
    cells = new[mesh.cells].astype(np.int32)
    order = rng.permutation(len(cells)) if rng is not None else np.argsort(cells.min(axis=1), kind="stable")
    return Mesh(points, np.ascontiguousarray(cells[order]), mesh.element)


def by_bandwidth(mesh: Mesh) -> Mesh:
    """Numbers nodes by SciPy's reverse Cuthill-McKee and elements by their smallest node."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    from ..assembling.symbolic import symbolic

    found = symbolic(mesh.cells, len(mesh.points), map_bytes=0)
    graph = csr_array((np.ones(len(found.indices), np.int8), found.indices, found.indptr))
    new = np.empty(len(mesh.points), np.int64)
    new[reverse_cuthill_mckee(graph, symmetric_mode=True)] = np.arange(len(new))
    return renumbered(mesh, new)


def along_hilbert(mesh: Mesh) -> Mesh:
    """Numbers nodes along Hilbert's curve and elements by their smallest node."""
    new = np.empty(len(mesh.points), np.int64)
    new[np.argsort(hilbert(mesh.points), kind="stable")] = np.arange(len(new))
    return renumbered(mesh, new)


def hilbert(points: np.ndarray, bits: int = 10) -> np.ndarray:
    """Returns places along Hilbert's curve, int64[nodes] (Skilling, AIP Conference Proceedings 707, 2004)."""
    d = points.shape[1]
    span = np.ptp(points, axis=0).max() or 1.0
    x = np.minimum((points - points.min(axis=0)) / span * 2**bits, 2**bits - 1).astype(np.int64).T.copy()
    q = 1 << (bits - 1)
    while q > 1:
        p = q - 1
        for i in range(d):
            high = (x[i] & q) > 0
            swapped = np.where(high, 0, (x[0] ^ x[i]) & p)
            x[0] = np.where(high, x[0] ^ p, x[0] ^ swapped)
            x[i] ^= swapped
        q >>= 1
    for i in range(1, d):
        x[i] ^= x[i - 1]
    turn = np.zeros_like(x[0])
    q = 1 << (bits - 1)
    while q > 1:
        turn = np.where(x[d - 1] & q, turn ^ (q - 1), turn)
        q >>= 1
    x ^= turn
    key = np.zeros_like(x[0])
    for bit in range(bits - 1, -1, -1):
        for i in range(d):
            key = (key << 1) | ((x[i] >> bit) & 1)
    return key
