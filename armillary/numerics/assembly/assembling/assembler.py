"""The assembler, which prepares a mesh, an element and a physics once and gives a matrix for every set of coefficients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary import arrays
from armillary.errors import InputError, unknown
from armillary.timing import Stopwatch

from ..elements.elements import Work, forms, tables
from ..meshes.mesh import Mesh, checked
from .strategy import STRATEGIES, Prepared, Problem, Strategy, strategy

if TYPE_CHECKING:
    from ..selecting.choice import Choice
    from .symbolic import Symbolic

#: Assemblies after which `verify` times the two best.
VERIFY_AFTER = 20


def problem_of(
    mesh: Mesh, physics: str = "poisson", *, poisson_ratio: float = 0.3, map_bytes: int = 1 << 32, store_elements: bool = False
) -> Problem:
    """Returns the problem of a checked mesh, from which every strategy prepares; coefficients are 1."""
    form = forms(physics)
    shape, slope, weight, mass = tables(mesh.element, form)
    s = mesh.element.nodes * (mesh.element.dimension if physics == "elasticity" else 1)
    work = Work(
        np.ascontiguousarray(mesh.points.T), mesh.cells, shape, slope, weight, mass, form, mesh.element.affine,
        mesh.element.dimension if physics == "elasticity" else 1, coefficients(1.0, physics, len(mesh.cells), poisson_ratio),
        np.empty((2, 0, s, s)),
    )  # fmt: skip
    if store_elements:
        work = work._replace(stored=_stored(work, s))
    return Problem(mesh.element, physics, work, map_bytes)


def coefficients(given: Any, physics: str, elements: int, poisson_ratio: float = 0.3) -> np.ndarray:
    """Returns (c0, c1) for the kernels, float64[2, elements or 1].

    `given` is one number or one for each element: the conductivity (poisson), the density (mass), Young's modulus (elasticity). For
    reaction-diffusion it is a pair of such: conductivity and reaction; one of them alone stands for both.
    """
    if physics == "reaction-diffusion" and isinstance(given, tuple | list) and len(given) == 2:
        pair = [_numbers(part, elements) for part in given]
        width = max(len(part) for part in pair)
        return np.stack([np.broadcast_to(part, width) for part in pair])
    one = _numbers(given, elements)
    if physics == "poisson":
        return np.stack([one, np.zeros_like(one)])
    if physics == "mass":
        return np.stack([np.zeros_like(one), one])
    if physics == "reaction-diffusion":
        return np.stack([one, one])
    if not -1 < poisson_ratio < 0.5:
        raise InputError(f"found {poisson_ratio}; expected a Poisson ratio between -1 and 0.5", where="poisson_ratio")
    return np.stack([one * poisson_ratio / ((1 + poisson_ratio) * (1 - 2 * poisson_ratio)), one / (2 * (1 + poisson_ratio))])


def _numbers(given: Any, elements: int) -> np.ndarray:
    try:
        found = np.atleast_1d(np.asarray(given, np.float64))
    except (TypeError, ValueError):
        raise InputError(f"found {type(given).__name__}; expected a number, or one for each element", where="coefficients") from None
    if found.ndim != 1 or len(found) not in (1, elements):
        raise InputError(f"found shape {found.shape}; expected 1 or {elements} numbers", where="coefficients")
    if not np.isfinite(found).all():
        raise InputError(f"element {int(np.argmin(np.isfinite(found)))}: found no finite number", where="coefficients")
    return found


def _stored(work: Work, s: int) -> np.ndarray:
    from ..elements.element_matrices import store

    made = np.empty((2, len(work.cells), s, s))
    for part, pair in enumerate(((1.0, 0.0), (0.0, 1.0))):
        store(work._replace(coefficients=np.array(pair).reshape(2, 1)), made[part])
    return made


class Assembler:
    """Assembles a finite-element matrix again and again on one mesh.

        asm = Assembler(points, cells, element="P1", physics="poisson", strategy="auto")
        matrix = asm(coefficients)          # scipy.sparse.csr_array; indices and indptr are shared between calls

    `points` float[nodes, d] and `cells` int[elements, a], or for mixed meshes a mapping from meshio's cell names to such arrays
    (the linear or quadratic element of each is taken, and the matrices added). `strategy` is a name, a `Strategy`, or "auto", which asks
    `choose` for an assembly that is repeated `reuse` times. `verify` times the two that were predicted fastest once the 20th assembly
    comes, and keeps the faster. `hybrid` lets "auto" set elements at nodes of high valence apart. `xp` (cupy or torch) puts work and
    matrix on that library's device: see `device.py`. `weights` is an .npz from `train`, for another machine or device than the package's.

    Columns of rows are sorted; a node without elements keeps its empty row. With d unknowns per node, node i has rows d·i to d·i + d - 1.
    """

    def __init__(
        self,
        points: Any,
        cells: Any,
        element: str = "P1",
        physics: str = "poisson",
        strategy: str | Strategy = "auto",
        xp: Any = np,
        *,
        reuse: int = VERIFY_AFTER,
        verify: bool = False,
        hybrid: bool = False,
        weights: Path | str | None = None,
        poisson_ratio: float = 0.3,
        store_elements: bool = False,
        map_bytes: int = 1 << 32,
        allow_inverted: bool = False,
    ) -> None:
        self.physics, self.poisson_ratio, self.verify, self.reuse = physics, poisson_ratio, verify, reuse
        #: How the strategy was chosen; None where it was given.
        self.choice: Choice | None = None
        #: Assemblies so far.
        self.calls = 0
        self._inner: list[tuple[Any, np.ndarray]] = []
        if isinstance(cells, Mapping):
            self._mixed(points, cells, physics, strategy, poisson_ratio, allow_inverted)
            return
        self._device = None if xp is np or xp is None else xp
        host_points, host_cells = (
            arrays.to_host(x) if self._device is not None and not isinstance(x, list) else x for x in (points, cells)
        )
        mesh = checked(host_points, host_cells, element, allow_inverted=allow_inverted)
        self.problem = problem_of(mesh, physics, poisson_ratio=poisson_ratio, map_bytes=map_bytes, store_elements=store_elements)
        if self._device is not None:
            from .device import DeviceAssembly

            self._on_device = DeviceAssembly(self.problem, strategy, points, self._device, weights)
            self.strategy: Strategy | None = None
            return
        self._symbolic: Symbolic | None = None
        if strategy == "auto":
            from ..selecting.choice import choose_for

            self.choice = choose_for(self.problem, reuse=reuse, weights=weights, hybrid=hybrid)
            self.strategy = self.choice.made
        elif isinstance(strategy, str):
            self.strategy = named(strategy)
        else:
            self.strategy = strategy
        with Stopwatch() as watch:
            self._prepared = self._prepare(self.strategy)
        #: Seconds of the symbolic phase.
        self.setup_s = watch.seconds

    def __call__(self, given: Any = 1.0) -> Any:
        """Returns the matrix for these coefficients: one number, or one for each element; pairs of both for reaction-diffusion.

        A mesh of mixed cells takes one number. On a device the result is the library's own sparse CSR matrix.
        """
        self.calls += 1
        if self._inner:
            return self._sum(given)
        if self._device is not None:
            return self._on_device(given, self.poisson_ratio)
        from scipy.sparse import csr_array

        values = coefficients(given, self.physics, self.problem.elements, self.poisson_ratio)
        if self.verify and self.calls == VERIFY_AFTER and self.choice is not None:
            self._try_both(values)
        data, indices, indptr = self._prepared.numeric(values)
        size = self.problem.nodes * self.problem.work.dofs
        found = csr_array((data, indices, indptr), shape=(size, size))
        found.has_sorted_indices = found.has_canonical_format = True
        return found

    @property
    def facts(self) -> dict[str, Any]:
        """What preparation found: colours, parts, passes of the sort."""
        return self._prepared.facts

    def _prepare(self, chosen: Strategy) -> Prepared:
        from .symbolic import symbolic

        if chosen.symbolic and self._symbolic is None:
            work = self.problem.work
            self._symbolic = symbolic(work.cells, self.problem.nodes, work.dofs, self.problem.map_bytes)
        return chosen.prepare(self.problem, self._symbolic)

    def _try_both(self, values: np.ndarray) -> None:
        """Times the two that were predicted fastest, twice each, and keeps the faster."""
        assert self.choice is not None
        best: tuple[float, Strategy, Prepared] | None = None
        for candidate in self.choice.first_two():
            prepared = self._prepared if candidate == self.strategy else self._prepare(candidate)
            prepared.numeric(values)
            with Stopwatch() as watch:
                prepared.numeric(values)
            if best is None or watch.seconds < best[0]:
                best = watch.seconds, candidate, prepared
        assert best is not None
        self.strategy, self._prepared = best[1], best[2]

    def _mixed(self, points: Any, cells: Mapping[str, Any], physics: str, chosen: Any, ratio: float, inverted: bool) -> None:
        from ..elements.elements import ELEMENTS

        for name, block in cells.items():
            if name not in ELEMENTS:
                raise unknown("cell type", str(name), ELEMENTS, where="cells")
            one = Assembler(points, block, ELEMENTS[name].name, physics, chosen, poisson_ratio=ratio, allow_inverted=inverted)
            self._inner.append((one, np.asarray(block)))
        if not self._inner:
            raise InputError("found no cells; expected at least one kind", where="cells")
        self._device, self.strategy = None, None

    def _sum(self, given: Any) -> Any:
        total = None
        for one, _ in self._inner:
            part = one(given)
            total = part if total is None else total + part
        return total


def named(name: str) -> Strategy:
    """Returns the strategy of this name, or raises an InputError that lists the names."""
    if name not in STRATEGIES:
        raise unknown("strategy", str(name), (*STRATEGIES, "auto"))
    return strategy(name)
