"""Every strategy gives the one right matrix, by hand, by properties that hold for any mesh, and beside scikit-fem."""

from __future__ import annotations

import dataclasses
from itertools import product
from math import factorial, prod

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.numerics.assembly import Assembler, Hybrid, Plan, build, colour, problem_of, quadratic
from armillary.numerics.assembly.assembling.strategy import STRATEGIES, strategy
from armillary.numerics.assembly.assembling.symbolic import symbolic
from armillary.numerics.assembly.blocked import Blocked
from armillary.numerics.assembly.elements.elements import ELEMENTS, MASS, STIFFNESS, tables
from armillary.numerics.assembly.elements.quadrature import CUBE, EDGES, rule, shapes
from armillary.numerics.assembly.meshes.grids import fan, grid, hilbert, jittered, renumbered
from armillary.numerics.assembly.meshes.mesh import Mesh, checked, oriented
from armillary.numerics.assembly.workload import FAMILIES, catalogue

SQUARE = np.array([(0, 0), (1, 0), (1, 1), (0, 1)], float)
TWO = np.array([(0, 1, 2), (0, 2, 3)])
ALL = [*STRATEGIES, "hybrid", "small parts"]
CELLS = ("triangle", "tetra", "quad", "hexahedron", "triangle6", "tetra10")


def made(name: str):
    """Returns a strategy by name; two have parameters that small meshes would not otherwise reach."""
    return {"hybrid": Hybrid("coloured", "blocked"), "small parts": Blocked(part_elements=16)}.get(name, name)


def mesh_of(cell: str, side: int = 3, seed: int = 0) -> Mesh:
    element = ELEMENTS[cell]
    linear = {"triangle6": "triangle", "tetra10": "tetra"}.get(cell, cell)
    mesh = jittered(grid(linear, (side,) * element.dimension), 0.8, np.random.default_rng(seed))
    return quadratic(mesh) if element.order == 2 else mesh


def assembled(mesh: Mesh, physics: str = "poisson", name: str = "row-gather", given: object = 1.0, **options: object) -> np.ndarray:
    return Assembler(mesh.points, mesh.cells, mesh.element.name, physics, made(name), **options)(given).toarray()


@pytest.mark.parametrize("name", ALL)
def test_two_triangles_by_hand(name):
    k = Assembler(SQUARE, TWO, strategy=made(name))()
    assert k.toarray().tolist() == [[1, -0.5, 0, -0.5], [-0.5, 1, -0.5, 0], [0, -0.5, 1, -0.5], [-0.5, 0, -0.5, 1]]
    assert k.nnz == 14  # (0, 2) is in the pattern with a sum of zero, (1, 3) is not.
    assert k.indices[k.indptr[1] : k.indptr[2]].tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ALL)
def test_the_mass_of_one_triangle_by_hand(name):
    k = Assembler(SQUARE, TWO[:1], physics="mass", strategy=made(name))(24.0)
    assert k.toarray() == pytest.approx(np.array([[2, 1, 1, 0], [1, 2, 1, 0], [1, 1, 2, 0], [0, 0, 0, 0]]))
    assert k.shape == (4, 4)
    assert np.diff(k.indptr).tolist() == [3, 3, 3, 0]  # An unused node keeps its empty row.


def test_the_reference_tetrahedron_and_square_by_hand():
    corner = np.array([(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)], float)
    k = Assembler(corner, [[0, 1, 2, 3]], strategy="row-gather")(6.0).toarray()
    assert k == pytest.approx(np.array([[3, -1, -1, -1], [-1, 1, 0, 0], [-1, 0, 1, 0], [-1, 0, 0, 1]]))
    k = Assembler(SQUARE, [[0, 1, 2, 3]], "Q1", strategy="coo-sort")(6.0).toarray()
    assert k == pytest.approx(np.array([[4, -1, -2, -1], [-1, 4, -1, -2], [-2, -1, 4, -1], [-1, -2, -1, 4]]))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cell", ["triangle", "tetra"])
def test_all_strategies_agree_on_every_family(family, cell):
    mesh = build(Plan(family, cell, "P1", "elasticity", 300))
    coefficients = np.random.default_rng(1).uniform(0.5, 2, mesh.elements)
    for physics in ("poisson", "elasticity"):
        expected = Assembler(mesh.points, mesh.cells, physics=physics, strategy="row-gather")(coefficients)
        scale = 1e-14 * abs(expected).max() * max(4, np.bincount(mesh.cells.ravel()).max())
        for name in ALL:
            found = Assembler(mesh.points, mesh.cells, physics=physics, strategy=made(name))(coefficients)
            assert abs(found - expected).max() <= scale, name
            assert np.array_equal(found.indices, expected.indices), name
            assert np.array_equal(found.indptr, expected.indptr), name
            assert found.has_sorted_indices


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("name", ALL)
def test_strategies_agree_on_every_element(cell, name):
    mesh = mesh_of(cell)
    for physics in ("reaction-diffusion", "elasticity"):
        expected = assembled(mesh, physics)
        assert np.abs(assembled(mesh, physics, name) - expected).max() <= 1e-13 * np.abs(expected).max()
        stored = assembled(mesh, physics, name, 3.0, store_elements=True)
        assert np.abs(stored - 3 * expected).max() <= 1e-13 * np.abs(expected).max()
        searched = assembled(mesh, physics, name, map_bytes=0)
        assert np.abs(searched - expected).max() <= 1e-13 * np.abs(expected).max()


@pytest.mark.parametrize("cell", CELLS)
def test_stiffness_is_symmetric_and_kills_constants_and_passes_the_patch_test(cell):
    mesh = mesh_of(cell, seed=3)
    k = assembled(mesh)
    scale = np.abs(k).max()
    assert np.abs(k - k.T).max() <= 1e-14 * scale
    assert np.abs(k.sum(axis=1)).max() <= 1e-13 * scale
    # A linear field is in equilibrium inside: K u is zero at inner nodes.
    inner = ((mesh.points > 1e-9) & (mesh.points < 1 - 1e-9)).all(axis=1)
    u = 1 + mesh.points @ np.array([2.0, -1.0, 0.5])[: mesh.points.shape[1]]
    assert inner.sum() > 0
    assert np.abs((k @ u)[inner]).max() <= 1e-13 * scale
    # Its energy is that of the constant gradient.
    gradient = np.array([2.0, -1.0, 0.5])[: mesh.points.shape[1]]
    assert u @ k @ u == pytest.approx(gradient @ gradient)


@pytest.mark.parametrize("cell", CELLS)
def test_mass_sums_to_the_volume_and_integrates_what_it_can(cell):
    mesh = mesh_of(cell, seed=4)
    m = assembled(mesh, "mass")
    assert m.sum() == pytest.approx(1.0)
    x = mesh.points[:, 0]
    assert x @ m @ x == pytest.approx(1 / 3)
    assert np.linalg.eigvalsh(m).min() > 0


@pytest.mark.parametrize("cell", CELLS)
def test_elasticity_kills_all_rigid_modes_and_nothing_else(cell):
    mesh = mesh_of(cell, side=2)
    d = mesh.points.shape[1]
    k = assembled(mesh, "elasticity")
    modes = []
    for i in range(d):
        modes.append(np.tile(np.eye(d)[i], len(mesh.points)))
        for j in range(i):
            turn = np.zeros((len(mesh.points), d))
            turn[:, i], turn[:, j] = mesh.points[:, j], -mesh.points[:, i]
            modes.append(turn.ravel())
    for mode in modes:
        assert np.abs(k @ mode).max() <= 1e-13 * np.abs(k).max()
    values = np.linalg.eigvalsh(k)
    assert (values > 1e-10 * values.max()).sum() == len(values) - len(modes)


def test_uniform_stretch_has_the_energy_of_plane_strain():
    mesh = mesh_of("triangle")
    young, ratio = 3.0, 0.25
    lam, mu = young * ratio / ((1 + ratio) * (1 - 2 * ratio)), young / (2 * (1 + ratio))
    u = np.stack([mesh.points[:, 0], np.zeros(len(mesh.points))], axis=1).ravel()
    k = assembled(mesh, "elasticity", given=young, poisson_ratio=ratio)
    assert u @ k @ u == pytest.approx(lam + 2 * mu)
    shear = np.stack([mesh.points[:, 1], np.zeros(len(mesh.points))], axis=1).ravel()
    assert shear @ k @ shear == pytest.approx(mu)


@given(st.integers(0, 10_000), st.sampled_from(CELLS))
@settings(max_examples=25, deadline=None)
def test_renumbering_gives_the_permuted_matrix(seed, cell):
    rng = np.random.default_rng(seed)
    mesh = mesh_of(cell, side=2, seed=seed)
    new = rng.permutation(len(mesh.points))
    other = renumbered(mesh, new, rng)
    expected = assembled(mesh, name="coloured")
    found = assembled(other, name="blocked")
    assert np.abs(found[np.ix_(new, new)] - expected).max() <= 1e-13 * np.abs(expected).max()


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_the_matrix_is_linear_in_the_coefficients(seed):
    rng = np.random.default_rng(seed)
    mesh = mesh_of("tetra", side=2, seed=seed)
    asm = Assembler(mesh.points, mesh.cells, strategy=made(str(rng.choice(ALL))))
    a, b = rng.uniform(0.1, 2, (2, mesh.elements))
    assert abs(asm(a) + asm(b) - asm(a + b)).max() <= 1e-13
    first = asm(a)
    asm(b)
    assert np.array_equal(asm(a).data, first.data)


@pytest.mark.parametrize("name", ALL)
def test_the_number_of_threads_changes_no_bit_except_for_scatter(name):
    mesh = build(Plan("delaunay-uniform", "tetra", "P1", "elasticity", 700))
    chosen = strategy(name) if name in STRATEGIES else made(name)
    before, found = numba.get_num_threads(), []
    try:
        for threads in (1, min(2, before)):
            numba.set_num_threads(threads)
            found.append(Assembler(mesh.points, mesh.cells, physics="elasticity", strategy=chosen)().data)
    finally:
        numba.set_num_threads(before)
    if chosen.deterministic:
        assert np.array_equal(*found)
    else:
        assert found[0] == pytest.approx(found[1], rel=1e-10, abs=1e-12)


def test_only_scatter_and_what_may_hold_it_are_not_deterministic():
    assert [name for name in STRATEGIES if not strategy(name).deterministic] == ["scatter-atomic"]


@pytest.mark.parametrize("cell", ["triangle", "tetra", "hexahedron"])
@pytest.mark.parametrize("balance", [True, False])
def test_a_colouring_is_proper_and_needs_the_largest_valence(cell, balance):
    mesh = build(Plan("renumbered", cell, "P1", "poisson", 600))
    colours = colour(mesh.cells, len(mesh.points), balance)
    for c in range(colours.max() + 1):
        nodes = mesh.cells[colours == c].ravel()
        assert len(nodes) == len(np.unique(nodes)) > 0
    assert colours.max() + 1 >= np.bincount(mesh.cells.ravel()).max()


def test_balancing_evens_the_colours_out():
    mesh = build(Plan("perturbed", "tetra", "P1", "poisson", 3000))
    plain, even = (np.bincount(colour(mesh.cells, len(mesh.points), balance)) for balance in (False, True))
    assert len(plain) == len(even)
    assert even.min() > plain.min()
    assert even.std() < 0.5 * plain.std()


def test_a_fan_of_ten_thousand_needs_ten_thousand_colours():
    mesh = fan(10_000)
    colours = colour(mesh.cells, len(mesh.points))
    assert colours.max() + 1 == 10_000
    coloured, gathered = (Assembler(mesh.points, mesh.cells, strategy=name)().diagonal() for name in ("coloured", "row-gather"))
    assert np.abs(coloured - gathered).max() < 1e-9


def test_the_pattern_is_that_of_the_elements():
    mesh = build(Plan("delaunay-clustered", "tetra", "P1", "poisson", 500))
    found = symbolic(mesh.cells, len(mesh.points))
    expected = [set() for _ in mesh.points]
    for cell in mesh.cells:
        for i in cell:
            expected[i] |= set(cell.tolist())
    for i, columns in enumerate(expected):
        assert found.indices[found.indptr[i] : found.indptr[i + 1]].tolist() == sorted(columns)
    rows = np.repeat(np.arange(len(mesh.points)), np.diff(found.indptr))
    assert np.array_equal(rows[found.pattern.positions], np.broadcast_to(mesh.cells[:, :, None], found.pattern.positions.shape))
    assert np.array_equal(found.indices[found.pattern.positions], np.broadcast_to(mesh.cells[:, None, :], found.pattern.positions.shape))


@pytest.mark.parametrize(
    ("simplex", "dimension", "degree"),
    [(True, 2, 1), (True, 2, 2), (True, 2, 4), (True, 3, 1), (True, 3, 2), (True, 3, 4), (False, 2, 3), (False, 3, 3)],
)
def test_rules_of_integration_are_exact_for_their_degree(simplex, dimension, degree):
    at, weight = rule(simplex, dimension, degree)
    for powers in product(range(degree + 1), repeat=dimension):
        if simplex and sum(powers) > degree:
            continue
        exact = prod(map(factorial, powers)) / factorial(sum(powers) + dimension) if simplex else prod(1 / (p + 1) for p in powers)
        assert weight @ (at ** np.array(powers)).prod(axis=1) == pytest.approx(exact, rel=1e-14)


@pytest.mark.parametrize("cell", CELLS)
def test_shape_functions_are_one_at_their_node_and_derive_right(cell):
    element = ELEMENTS[cell]
    d = element.dimension
    corners = np.concatenate([np.zeros((1, d)), np.eye(d)]) if element.simplex else SQUARE if d == 2 else CUBE
    nodes = corners if element.order == 1 else np.concatenate([corners, [corners[list(pair)].mean(axis=0) for pair in EDGES[d]]])
    values, slopes = shapes(element.simplex, d, element.order, nodes)
    assert values == pytest.approx(np.eye(len(nodes)), abs=1e-15)
    step = 1e-6
    at = np.full((1, d), 0.21)
    for i in range(d):
        ahead, behind = (shapes(element.simplex, d, element.order, at + s * step * np.eye(d)[i])[0] for s in (1, -1))
        assert shapes(element.simplex, d, element.order, at)[1][0, :, i] == pytest.approx(((ahead - behind) / (2 * step))[0], abs=1e-8)
    assert slopes.sum(axis=1) == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize("name", ALL)
def test_degenerate_meshes(name):
    one = Assembler([(0.0, 0), (1, 0), (0, 1)], [[0, 1, 2]], strategy=made(name))()
    assert one.toarray() == pytest.approx(np.array([[1, -0.5, -0.5], [-0.5, 0.5, 0], [-0.5, 0, 0.5]]))
    twice = Assembler(SQUARE, [[0, 1, 2], [0, 1, 2]], strategy=made(name))()
    single = Assembler(SQUARE, [[0, 1, 2]], strategy=made(name))()
    assert twice.toarray() == pytest.approx(2 * single.toarray())
    flat = Assembler(SQUARE, [[0, 1, 2], [0, 1, 1]], strategy=made(name), allow_inverted=True)()
    assert flat.toarray() == pytest.approx(single.toarray())
    turned = Assembler(SQUARE, [[1, 0, 2]], strategy=made(name), allow_inverted=True)()
    assert turned.toarray() == pytest.approx(single.toarray())


def test_mixed_cells_are_added():
    points = np.array([(0, 0), (1, 0), (1, 1), (0, 1), (2, 0), (2, 1)], float)
    both = Assembler(points, {"quad": [[0, 1, 2, 3]], "triangle": [[1, 4, 5], [1, 5, 2]]}, strategy="row-gather")()
    quad = Assembler(points, [[0, 1, 2, 3]], "Q1", strategy="coo-sort")()
    triangles = Assembler(points, [[1, 4, 5], [1, 5, 2]], strategy="coo-sort")()
    assert both.toarray() == pytest.approx((quad + triangles).toarray())
    u = points @ (2.0, 1.0)
    assert u @ both @ u == pytest.approx(2 * 5)


def test_a_pair_of_coefficients_is_diffusion_and_reaction():
    mesh = mesh_of("triangle")
    rng = np.random.default_rng(0)
    a, b = rng.uniform(1, 2, (2, mesh.elements))
    found = assembled(mesh, "reaction-diffusion", given=(a, b))
    assert found == pytest.approx(assembled(mesh, "poisson", given=a) + assembled(mesh, "mass", given=b))
    assert assembled(mesh, "reaction-diffusion", given=(2.0, b)) == pytest.approx(2 * assembled(mesh) + assembled(mesh, "mass", given=b))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cells": [[0, 1, 2], [0, 2, 9]]}, "element 1: found node 9; expected 0 to 3"),
        ({"cells": [[0, 1, -1]]}, "element 0: found node -1"),
        ({"points": [(0, 0), (1, 0), (float("nan"), 1), (0, 1)]}, "node 2: found coordinate nan"),
        ({"cells": [[0, 2, 1]]}, "element 0 has its nodes inside out"),
        ({"cells": [[0, 1, 2], [0, 1, 1]]}, "element 1 has no volume"),
        ({"cells": [[0, 1, 2, 3]]}, "cells of 4 nodes; expected 3"),
        ({"cells": np.empty((0, 3), int)}, "rows of node numbers"),
        ({"cells": [[0.0, 1.0, 2.0]]}, "rows of node numbers"),
        ({"points": [(0, 0, 0, 0)] * 4}, "2 or 3 coordinates"),
        ({"element": "P3"}, 'unknown element "P3"'),
        ({"physics": "stokes"}, 'unknown physics "stokes"'),
        ({"strategy": "magic"}, 'unknown strategy "magic"'),
        ({"cells": {"wedge": [[0, 1, 2]]}}, 'unknown cell type "wedge"'),
        ({"cells": {}}, "no cells"),
        ({"xp": dataclasses}, "expected numpy, cupy or torch"),
        ({"physics": "elasticity", "poisson_ratio": 0.5}, "Poisson ratio"),
    ],
)
def test_bad_meshes_are_refused_in_one_line(change, words):
    given = {"points": SQUARE, "cells": TWO, "strategy": "row-gather"} | change
    with pytest.raises(InputError, match=words.replace("(", r"\(")) as error:
        Assembler(**given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("given", [[1.0, 2.0, 3.0], np.ones((2, 2)), [1.0, np.inf], "many", None])
def test_bad_coefficients_are_refused(given):
    with pytest.raises(InputError, match="coefficients"):
        Assembler(SQUARE, TWO, strategy="row-gather")(given)


SKFEM = {
    "triangle": ("MeshTri", "ElementTriP1"), "tetra": ("MeshTet", "ElementTetP1"), "quad": ("MeshQuad", "ElementQuad1"),
    "hexahedron": ("MeshHex", "ElementHex1"), "triangle6": ("MeshTri", "ElementTriP2"), "tetra10": ("MeshTet", "ElementTetP2"),
}  # fmt: skip


def _skfem_basis(cell: str):
    """Returns their mesh with inner nodes moved, their basis, and the same mesh with points and cells in our order."""
    skfem = pytest.importorskip("skfem")
    mesh_type, element_type = SKFEM[cell]
    mesh = getattr(skfem, mesh_type)().refined(2 if ELEMENTS[cell].dimension == 2 else 1)
    p = mesh.p.copy()
    inner = ((p > 1e-9) & (p < 1 - 1e-9)).all(axis=0)
    p[:, inner] += np.random.default_rng(5).uniform(-0.03, 0.03, (p.shape[0], inner.sum()))
    mesh = type(mesh)(p, mesh.t)
    basis = skfem.Basis(mesh, getattr(skfem, element_type)(), intorder=3 if cell in ("quad", "hexahedron") else 4)
    points, cells = basis.doflocs.T, basis.element_dofs.T
    if cell == "hexahedron":
        # Their corners are sorted by the number of ones in their coordinates.
        theirs = np.asarray(basis.elem.doflocs)
        cells = cells[:, [int(np.flatnonzero((theirs == c).all(axis=1))[0]) for c in CUBE]]
    element = ELEMENTS[cell]
    ours = Mesh(np.ascontiguousarray(points), np.ascontiguousarray(cells, np.int32), element)
    return skfem, basis, oriented(ours) if element.simplex else ours


@pytest.mark.parametrize("cell", CELLS)
def test_scikit_fem_gives_the_same_stiffness_and_mass(cell):
    from skfem.models.poisson import laplace, mass

    skfem, basis, mesh = _skfem_basis(cell)
    for form, physics in ((laplace, "poisson"), (mass, "mass")):
        expected = skfem.asm(form, basis).toarray()
        found = Assembler(mesh.points, mesh.cells, mesh.element.name, physics, "row-gather", allow_inverted=True)().toarray()
        assert np.abs(found - expected).max() <= 1e-13 * np.abs(expected).max(), physics


@pytest.mark.parametrize("cell", ["triangle", "tetra"])
def test_scikit_fem_gives_the_same_elasticity(cell):
    from skfem.models.elasticity import lame_parameters, linear_elasticity

    skfem, basis, mesh = _skfem_basis(cell)
    vector = skfem.Basis(basis.mesh, skfem.ElementVector(basis.elem), intorder=2)
    expected = skfem.asm(linear_elasticity(*lame_parameters(2.0, 0.3)), vector).toarray()
    at = vector.nodal_dofs.T.ravel()
    found = Assembler(mesh.points, mesh.cells, physics="elasticity", strategy="row-gather", allow_inverted=True)(2.0).toarray()
    assert np.abs(found - expected[np.ix_(at, at)]).max() <= 1e-13 * np.abs(expected).max()


def test_scipy_sums_the_same_triplets():
    from scipy.sparse import coo_array

    mesh = mesh_of("tetra", side=4)
    problem = problem_of(mesh, store_elements=True)
    rows = np.broadcast_to(mesh.cells[:, :, None], problem.work.stored[0].shape).ravel()
    columns = np.broadcast_to(mesh.cells[:, None, :], problem.work.stored[0].shape).ravel()
    expected = coo_array((problem.work.stored[0].ravel(), (rows, columns)), shape=(problem.nodes,) * 2).tocsr()
    found = Assembler(mesh.points, mesh.cells, strategy="coo-sort")()
    assert abs(found - expected).max() <= 1e-14
    assert np.array_equal(found.indptr, expected.indptr)


@pytest.mark.parametrize("name", ["scatter-atomic", "coloured", "row-gather", "coo-sort", "auto"])
@pytest.mark.parametrize("cell", ["triangle", "tetra", "hexahedron", "tetra10"])
def test_torch_tensors_give_the_same_matrix_where_they_lie(name, cell):
    torch = pytest.importorskip("torch")
    mesh = mesh_of(cell, side=2)
    points, cells = torch.tensor(mesh.points), torch.tensor(mesh.cells)
    coefficients = torch.linspace(1, 2, mesh.elements, dtype=torch.float64)
    for physics in ("poisson", "reaction-diffusion", "elasticity"):
        found = Assembler(points, cells, mesh.element.name, physics, name, torch)(coefficients)
        assert found.layout == torch.sparse_csr
        expected = assembled(mesh, physics, given=coefficients.numpy())
        assert np.abs(found.to_dense().numpy() - expected).max() <= 1e-13 * np.abs(expected).max()


def test_blocked_is_refused_on_a_device():
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match="unknown strategy on a device"):
        Assembler(torch.tensor(SQUARE), torch.tensor(TWO), strategy="blocked", xp=torch)


def test_the_catalogue_has_four_hundred_meshes_of_all_families():
    plans = catalogue()
    assert len(plans) >= 400
    assert len({plan.name for plan in plans}) == len(plans)
    assert {plan.family for plan in plans} == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_plan_gives_a_sound_mesh_and_the_same_one_again(family):
    for cell in ("triangle", "tetra", "quad", "hexahedron"):
        if cell in ("quad", "hexahedron") and not any(p.family == family and p.cell == cell for p in catalogue()):
            continue
        element = "Q1" if cell in ("quad", "hexahedron") else "P1"
        plan = Plan(family, cell, element, "poisson", 1500, 7)
        mesh = build(plan)
        checked(mesh.points, mesh.cells, element)
        assert 500 < mesh.elements < 6000
        again = build(plan)
        assert np.array_equal(mesh.points, again.points)
        assert np.array_equal(mesh.cells, again.cells)
        # No node hangs, so every inner face of simplices has two elements and the mass sums to the volume of the mesh.
        if family in ("refined-point", "refined-curve"):
            _conforming(mesh)


def _conforming(mesh: Mesh) -> None:
    d = mesh.element.dimension
    faces = np.sort(np.concatenate([np.delete(mesh.cells, k, axis=1) for k in range(d + 1)]), axis=1)
    unique, counts = np.unique(faces, axis=0, return_counts=True)
    assert counts.max() == 2
    on_side = mesh.points[unique[counts == 1]]
    outside = ((np.abs(on_side) < 1e-12).all(axis=1) | (np.abs(on_side - 1) < 1e-12).all(axis=1)).any(axis=1)
    assert outside.all()
    corners = mesh.points[mesh.cells]
    volumes = np.linalg.det(corners[:, 1:] - corners[:, :1])
    assert volumes.sum() / (2 if d == 2 else 6) == pytest.approx(1.0)
    assert volumes.max() / volumes.min() > 3  # Elements near the curve are bisected at least twice more than those far from it.


def test_hilbert_order_walks_from_neighbour_to_neighbour():
    for d in (2, 3):
        side = 8
        points = np.stack(np.meshgrid(*[np.arange(side)] * d, indexing="ij"), axis=-1).reshape(-1, d).astype(float)
        # Eight cells along a side are three bits.
        walk = points[np.argsort(hilbert(points, bits=3))]
        assert (np.abs(np.diff(walk, axis=0)).sum(axis=1) == 1).all()


def test_forms_have_their_integrals():
    shape, slope, weight, mass = tables(ELEMENTS["tetra"], STIFFNESS | MASS)
    assert mass == pytest.approx((np.ones((4, 4)) + np.eye(4)) / 20)
    assert weight.sum() == pytest.approx(1 / 6)
    assert slope.shape == (1, 4, 3)
    assert shape == pytest.approx(0.25)
