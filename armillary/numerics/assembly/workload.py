"""Meshes by family, which are the built-in work and what the network learns from.

Families differ in what matters to assembly: order of nodes, spread of valences, grading, holes between parts. A mesh that was learned
from and a mesh that is judged never share a family.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from armillary.errors import unknown
from armillary.streams import stream

from .meshes import grids
from .meshes.mesh import Mesh, quadratic

FAMILIES = (
    "structured", "perturbed", "renumbered", "rcm", "hilbert", "refined-point", "refined-curve", "delaunay-uniform", "delaunay-clustered",
    "fan", "layers", "parts",
)  # fmt: skip
#: Families that can be made of quads and hexahedra.
#: Families in whose catalogue nodes come in every order; the others are one grid whose order is what makes the family.
_ORDERED = ("refined-point", "refined-curve", "delaunay-uniform", "delaunay-clustered", "fan", "layers", "parts")
Order = Literal["as made", "random", "rcm", "hilbert"]
ORDERS: tuple[Order, ...] = ("as made", "random", "rcm", "hilbert")
_BOXES = ("structured", "perturbed", "renumbered", "rcm", "hilbert", "layers", "parts")


@dataclass(frozen=True)
class Plan:
    """One mesh to make: its family, linear cell, element and physics, about how many elements, a seed, and the order of its nodes."""

    family: str
    cell: str
    element: str
    physics: str
    elements: int
    seed: int = 0
    order: Order = "as made"

    @property
    def name(self) -> str:
        """Unique among the plans of a catalogue."""
        order = "" if self.order == "as made" else f"-{self.order}"
        return f"{self.family}-{self.cell}-{self.element}-{self.physics}-{self.elements}-{self.seed}{order}".lower()


def catalogue(smallest: int = 20_000, largest: int = 200_000) -> list[Plan]:
    """Returns the plans that the network learns from: 12 families × cells × elements and physics × sizes, 420 in all.

    Meshes of seven families come in four orders in turn, so that a network can learn what an order does without the grids that are
    judged.
    """
    plans = []
    steps = [round(x) for x in np.geomspace(smallest, largest, 4)]
    for family in FAMILIES:
        kinds = [("triangle", "P1", "poisson"), ("tetra", "P1", "poisson"), ("triangle", "P1", "elasticity"), ("tetra", "P1", "elasticity")]
        kinds += [("triangle", "P2", "poisson"), ("tetra", "P2", "mass"), ("tetra", "P1", "reaction-diffusion")]
        if family in _BOXES:
            kinds += [("quad", "Q1", "poisson"), ("hexahedron", "Q1", "poisson"), ("hexahedron", "Q1", "elasticity")]
        for k, (cell, element, physics) in enumerate(kinds):
            for n, elements in enumerate(steps):
                # There are fewer elements where each has many entries, so that every mesh takes about as long.
                heavy = (
                    {"P1": 1, "Q1": 2, "P2": 3}[element]
                    * (3 if physics == "elasticity" else 1)
                    * (1 if cell in ("triangle", "quad") else 2)
                )
                plans.append(Plan(family, cell, element, physics, max(500, elements // heavy), 10 * k + n, _order(family, k + n)))
    return plans


def _order(family: str, turn: int) -> Order:
    return ORDERS[turn % len(ORDERS)] if family in _ORDERED else "as made"


def build(plan: Plan) -> Mesh:
    """Builds the mesh of a plan, which is the same every time."""
    if plan.family not in FAMILIES:
        raise unknown("mesh family", plan.family, FAMILIES)
    rng = stream(plan.seed, "mesh", plan.family, plan.cell, str(plan.elements))
    mesh = in_order(_linear(plan.family, plan.cell, plan.elements, rng), plan.order, rng)
    return quadratic(mesh) if plan.element == "P2" else mesh


def _linear(family: str, cell: str, elements: int, rng: np.random.Generator) -> Mesh:
    d = 2 if cell in ("triangle", "quad") else 3
    if family == "fan":
        return _fans(d, elements, rng)
    if family in ("refined-point", "refined-curve"):
        return _refined(family, cell, d, elements, rng)
    if family.startswith("delaunay"):
        return _delaunay(family, d, elements, rng)
    if family == "layers":
        return _layers(cell, d, elements, rng)
    if family == "parts":
        count = int(rng.integers(2, 40))
        parts = [_plain(cell, d, max(8, elements // count)) for _ in range(count)]
        return grids.together([Mesh(p.points + 1.5 * i * (np.arange(d) == 0), p.cells, p.element) for i, p in enumerate(parts)])
    mesh = _plain(cell, d, elements)
    if family == "structured":
        return mesh
    mesh = grids.jittered(mesh, float(rng.uniform(0.3, 0.9)), rng)
    if family == "perturbed":
        return mesh
    mesh = in_order(mesh, "random", rng)
    return mesh if family == "renumbered" else in_order(mesh, "rcm" if family == "rcm" else "hilbert", rng)


def in_order(mesh: Mesh, order: Order, rng: np.random.Generator) -> Mesh:
    """Returns the mesh with nodes and elements in this order: as they are, at random, by reverse Cuthill-McKee or along Hilbert's curve."""
    if order == "random":
        return grids.renumbered(mesh, rng.permutation(len(mesh.points)), rng)
    return grids.by_bandwidth(mesh) if order == "rcm" else grids.along_hilbert(mesh) if order == "hilbert" else mesh


def _plain(cell: str, d: int, elements: int) -> Mesh:
    per_box = {"triangle": 2, "tetra": 6}.get(cell, 1)
    side = max(1, round((elements / per_box) ** (1 / d)))
    return grids.grid(cell, (side,) * d)


def _refined(family: str, cell: str, d: int, elements: int, rng: np.random.Generator) -> Mesh:
    """Returns a mesh that is fine near some points or near a circle (in space a cylinder), graded 4 to 64."""
    start = _plain(cell, d, max(24, elements // 30))
    spots = rng.uniform(0.2, 0.8, (int(rng.integers(1, 4)), d))
    radius = float(rng.uniform(0.2, 0.4))

    def to_points(at: np.ndarray) -> np.ndarray:
        return np.min([np.linalg.norm(at - spot, axis=1) for spot in spots], axis=0)

    def to_curve(at: np.ndarray) -> np.ndarray:
        return np.abs(np.linalg.norm(at[:, :2] - 0.5, axis=1) - radius)

    return grids.graded(start, to_points if family == "refined-point" else to_curve, elements, float(rng.choice([4, 16, 64])))


def _delaunay(family: str, d: int, elements: int, rng: np.random.Generator) -> Mesh:
    count = max(d + 2, elements // (2 if d == 2 else 6))
    points = rng.uniform(size=(count, d))
    if family == "delaunay-clustered":
        clusters = rng.uniform(0.1, 0.9, (8, d))
        tight = (
            clusters[rng.integers(0, 8, count)]
            + rng.normal(size=(count, d)) * np.geomspace(0.1, 0.003, 8)[rng.integers(0, 8, count)][:, None]
        )
        points = np.where(rng.uniform(size=(count, 1)) < 0.8, tight, points)
    return grids.triangulated(points)


def _fans(d: int, elements: int, rng: np.random.Generator) -> Mesh:
    """Returns nodes with 30 to 10,000 elements each, side by side."""
    valence = int(min(elements, np.exp(rng.uniform(np.log(30), np.log(10_000)))))
    fans = max(1, elements // valence)
    return grids.together([grids.fan(valence, d, 2.5 * k) for k in range(fans)])


def _layers(cell: str, d: int, elements: int, rng: np.random.Generator) -> Mesh:
    """Returns a few thin layers of many boxes, whose last axis is shrunk 100-fold."""
    deep = int(rng.integers(2, 6))
    per_box = {"triangle": 2, "tetra": 6}.get(cell, 1)
    side = max(1, round((elements / per_box / deep) ** (1 / (d - 1))))
    sides = (side,) * (d - 1) + (deep,)
    sides = sides if rng.uniform() < 0.5 else sides[::-1]
    mesh = grids.grid(cell, sides)
    thin = np.where(np.arange(d) == int(np.argmin(sides)), 0.01, 1.0)
    return Mesh(mesh.points * thin, mesh.cells, mesh.element)
