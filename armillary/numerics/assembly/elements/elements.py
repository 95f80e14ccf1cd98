"""Element matrices are the same for every way of assembling them, so that only the assembly differs.

A bilinear form is c0·A + c1·B with two coefficients per element: Poisson and reaction-diffusion c0 ∫∇u·∇v + c1 ∫uv, a mass matrix
c1 ∫uv, elasticity λ ∫div u div v + 2μ ∫ε(u):ε(v), which is ∫ Bᵀ D B of the B-matrices written out (plane strain in two dimensions). Linear
simplices have one Jacobian and constant gradients; other elements are isoparametric and integrated numerically.

Zienkiewicz and Taylor: The Finite Element Method, 5th edition, 2000.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from armillary.errors import InputError, unknown

from .quadrature import rule, shapes

PHYSICS = ("poisson", "mass", "reaction-diffusion", "elasticity")
STIFFNESS, MASS, ELASTIC = 1, 2, 4


@dataclass(frozen=True)
class Element:
    """A kind of element: its name, what meshio calls its cells, and its shape."""

    name: str
    cell: str
    dimension: int
    nodes: int
    simplex: bool
    order: int

    @property
    def affine(self) -> bool:
        """Whether the whole element has one Jacobian."""
        return self.simplex and self.order == 1


ELEMENTS = {
    e.cell: e
    for e in (
        Element("P1", "triangle", 2, 3, True, 1),
        Element("P1", "tetra", 3, 4, True, 1),
        Element("P2", "triangle6", 2, 6, True, 2),
        Element("P2", "tetra10", 3, 10, True, 2),
        Element("Q1", "quad", 2, 4, False, 1),
        Element("Q1", "hexahedron", 3, 8, False, 1),
    )
}


def element_of(name: str, dimension: int, nodes: int) -> Element:
    """Returns the element of this name in this dimension; its cells must have `nodes` nodes."""
    names = {e.name for e in ELEMENTS.values()}
    if name not in names:
        raise unknown("element", str(name), names)
    found = next((e for e in ELEMENTS.values() if e.name == name and e.dimension == dimension), None)
    if found is None:
        raise InputError(f"found points of {dimension} coordinates; expected 2 or 3", where="points")
    if found.nodes != nodes:
        raise InputError(f"found cells of {nodes} nodes; expected {found.nodes} for {name} in {dimension} dimensions", where="cells")
    return found


class Work(NamedTuple):
    """The arguments of the kernels. Integers are Numba's, and arrays are contiguous."""

    #: float64[d, nodes]: structure of arrays.
    points: Any
    #: int32[elements, a].
    cells: Any
    #: Shape functions float64[q, a], derivatives float64[q, a, d] and weights float64[q] on the reference element.
    shape: Any
    slope: Any
    weight: Any
    #: float64[a, a]: ∫ N_a N_b on the reference element over its volume, for affine elements.
    mass: Any
    #: Sum of STIFFNESS, MASS or ELASTIC.
    form: int
    affine: bool
    #: Unknowns per node.
    dofs: int
    #: float64[2, elements], or float64[2, 1] where they are constant.
    coefficients: Any
    #: Element matrices for (c0, c1) = (1, 0) and (0, 1), float64[2, elements, s, s]; no elements where they are computed on the fly.
    stored: Any


def forms(physics: str) -> int:
    """Says which integrals a physics needs."""
    if physics not in PHYSICS:
        raise unknown("physics", str(physics), PHYSICS)
    return {"poisson": STIFFNESS, "mass": MASS, "reaction-diffusion": STIFFNESS | MASS, "elasticity": ELASTIC}[physics]


def tables(element: Element, form: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns shape functions, derivatives and weights for `form`, and the reference mass matrix."""
    degree = 2 * element.order if form & MASS else 2 * element.order - 2
    at, weight = rule(element.simplex, element.dimension, max(1, degree))
    shape, slope = shapes(element.simplex, element.dimension, element.order, at)
    mass = np.einsum("q,qa,qb->ab", weight, shape, shape) / weight.sum()
    if element.affine:
        at, weight = rule(True, element.dimension, 1)
        shape, slope = shapes(True, element.dimension, 1, at)
    return shape, slope, weight, mass


def flops_per_element(element: Element, form: int) -> float:
    """Returns floating-point operations of one element matrix, counted from the loops of `element_matrices.py`."""
    d, a = element.dimension, element.nodes
    q = 1 if element.affine else len(tables(element, form)[2])
    geometry = q * ((2 * d * d * a if not element.affine else d * d) + (14 if d == 2 else 60) + 2 * d * d * a)
    entry = {STIFFNESS: 2 * d + 1, MASS: 3, STIFFNESS | MASS: 2 * d + 4, ELASTIC: 2 * d + d * d * 5}[form]
    return float(geometry + q * a * a * entry)
