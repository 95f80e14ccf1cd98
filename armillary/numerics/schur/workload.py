"""Makes the work of the arena: whole problems torn into subdomains, one subdomain inside others, and matrices from files."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from armillary.files import map_array
from armillary.files.matrices import read_sparse
from armillary.timing import Stopwatch

from .complement.assembler import SchurAssembler
from .feti.decomposition import Decomposition, decompose
from .feti.meshes import grid, grid_parts, read_mesh
from .feti.physics import Physics
from .feti.solver import blas_threads, in_tasks, unpinned_tasks
from .implicit import Implicit

#: 16 subdomains, by dimension.
SIXTEEN = {2: (4, 4), 3: (4, 2, 2)}
#: Unknowns up to which the reference is a dense factor.
_DENSE = 1500


@dataclass(frozen=True)
class Work:
    """K and B of each subdomain, and the problem that they come from where there is one."""

    pairs: tuple[tuple[sparse.csc_array, sparse.csr_array], ...]
    problem: Decomposition | None = None
    general: bool = False

    @property
    def threads(self) -> int:
        """Threads to work on: two for several subdomains, one for a single one."""
        return min(2, len(self.pairs))

    @functools.cached_property
    def assemblers(self) -> list[SchurAssembler]:
        """One assembler per subdomain, with its symbolic phase and first factor done."""
        made = [SchurAssembler(k, b, Implicit(), general=self.general) for k, b in self.pairs]
        in_tasks([a.symbolic for a in made], self.threads)
        return made

    @functools.cached_property
    def factor_s(self) -> float:
        """Seconds of all numeric factorisations with the extraction of L, in a known order, from the second of two runs."""
        again = [lambda a=a: a.update(a.k.data).factor.lower for a in self.assemblers]
        with blas_threads(len(again), self.threads):
            for _ in range(2):
                with Stopwatch() as watch:
                    unpinned_tasks(again, self.threads)
        return watch.seconds

    @functools.cached_property
    def reference(self) -> tuple[np.ndarray, np.ndarray]:
        """Vectors of ±1 (m×8) and F times them for the last subdomain: a dense solve, or partial pivoting with a step of refinement."""
        k, b = self.pairs[-1]
        probes = np.where(np.random.default_rng(b.shape[0]).uniform(size=(b.shape[0], 8)) < 0.5, -1.0, 1.0)
        rhs = b.T @ probes
        if k.shape[0] <= _DENSE:
            return probes, b @ np.linalg.solve(k.toarray(), rhs)
        solver = splu(sparse.csc_array(k))
        x = solver.solve(rhs)
        return probes, b @ (x + solver.solve(rhs - k @ x))


def torn(physics: Physics, dimension: int, side: int) -> Work:
    """Returns 16 subdomains of the unit square or cube with `side` cells along each."""
    cells = tuple(side * p for p in SIXTEEN[dimension])
    problem = decompose(grid(*cells), grid_parts(cells, SIXTEEN[dimension]), physics)
    return Work(tuple((s.k_reg, s.b) for s in problem.subdomains), problem)


def from_matrices(k: Path, b: Path, general: bool) -> Work:
    """Reads one subdomain from two files."""
    found = Work(((sparse.csc_array(read_sparse(k)), sparse.csr_array(read_sparse(b))),), general=general)
    return Work(tuple((a.k, a.b) for a in [SchurAssembler(*found.pairs[0], general=general)]), general=general)


def from_mesh(path: Path, parts: int, partition: str, physics: Physics) -> Work:
    """Reads a mesh and tears it by a vector in a `.npy` file, or into `parts` by recursive coordinate bisection."""
    how: Any = np.array(map_array(Path(partition))) if partition else parts
    problem = decompose(read_mesh(path), how, physics)
    return Work(tuple((s.k_reg, s.b) for s in problem.subdomains), problem)
