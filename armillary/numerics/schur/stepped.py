"""Stepped sorts the right-hand sides by where their forward substitution begins, and skips all that lies above the stairs.

F = XᵀX with X = L⁻¹ P Bᵀ. Bᵀ is extremely sparse, and forward substitution never fills above a column's first nonzero, its pivot. With
columns sorted by pivot X is a staircase: row i has entries in its first columns only, up to its trail. The triangular solve goes by chunks
of the factor, each with the columns alive in it, and a chunk updates only the rows below that it touches (pruning); the product goes by
chunks of rows, each adding a square of the columns alive in it.

Utilizing Sparsity in the GPU-accelerated Assembly of Schur Complement Matrices in Domain Decomposition Methods. arXiv 2509.21037.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy import sparse

from armillary import arrays
from armillary.arena import Claim, Gain, Kind, Level
from armillary.parameters import parameter

from .complement.factor import Factor, Ordering
from .complement.method import Method, Work, mirrored, placed
from .complement.staircase import Partition, Staircase, bounds, staircase
from .complement.syrk import squares, stairs_by_columns
from .complement.trsm import Chunk, Prune, chunks, split_factor, split_sides

_STAND_IN = "BLAS on the host for an A100 with cuBLAS"


@dataclass(frozen=True)
class Plan:
    """The plan that depends on patterns alone: the staircase, where it is cut, the panels, and whether they are dense."""

    ordering: Ordering
    stairs: Staircase
    parts: list[Chunk]
    side_cuts: np.ndarray
    product_cuts: np.ndarray
    dense: bool


@dataclass(frozen=True)
class Stepped(Method):
    """Does a staircase triangular solve and a staircase product."""

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "assembly_s", over="explicit", by=Gain(ratio=(5.1, None)), on=Kind("heat", "3d", "one"), aggregate="max", honest=(4.0, None),
            part=1.5, says="up to 5.1 times faster in the accelerated section than assembly without using sparsity",
            why="the gain grows with the subdomain, and the largest that fits a host is smaller than the paper's", stand_in=_STAND_IN,
        ),
        Claim(
            "assembly_with_factor_s", over="explicit", by=Gain(ratio=(3.3, None)), on=Kind("heat", "3d", "one"), aggregate="max",
            honest=(2.5, None), part=1.5, says="up to 3.3 times faster for the whole assembly, the factorisation included",
            why="the gain grows with the subdomain, and the largest that fits a host is smaller than the paper's", stand_in=_STAND_IN,
        ),
        Claim(
            "amortization_iterations", by=Level(at_most=10.0), on=Kind("3d"), aggregate="max",
            says="assembly pays off from about 10 iterations, for some size", stand_in=_STAND_IN,
        ),
        Claim(
            "assembly_s", over="explicit", by=Gain(ratio=(5.1, None)), on=Kind("gpu"), aggregate="max", honest=(4.0, None), part=1.5,
            says="up to 5.1 times faster on a GPU than assembly without using sparsity",
            why="the paper's GPU is an A100, and libraries differ",
        ),
    )  # fmt: skip

    trsm: Literal["split-factor", "split-rhs"] = parameter(
        "split-factor", "whether the triangular solve goes by chunks of the factor or of the right-hand sides"
    )
    syrk: Literal["squares", "stairs"] = parameter("squares", "whether the product goes by chunks of rows or of columns")
    prune: Prune = parameter("rows", "which empty parts of a panel are left out")
    blocks: Literal["auto", "sparse", "dense"] = parameter(
        "auto",
        "whether blocks of the factor are sparse or dense; auto takes sparse in 2-D (few right-hand sides), dense in 3-D and on devices",
    )
    partition: Partition = parameter("size", "whether chunks have equal size, a given number, or the least work")
    trsm_chunk: int = parameter(
        0, "rows or columns per chunk of the solve, or the number of chunks unless they go by size; 0 chooses", range=(0, 10_000_000)
    )
    syrk_chunk: int = parameter(
        0, "rows or columns per chunk of the product, or the number of chunks unless they go by size; 0 chooses", range=(0, 10_000_000)
    )

    def plan(self, ordering: Ordering, b: sparse.csr_array) -> Plan:
        stairs = staircase(b, ordering.position)
        n, sides = ordering.n, b.shape[0]
        flat = is_flat(n, sides)
        solve, product = self._numbers(flat)
        by_rows = bounds(n, self.partition, solve, reverse=True)
        by_sides = bounds(sides, self.partition, solve, reverse=True)
        cuts = bounds(n if self.syrk == "squares" else sides, self.partition, product)
        dense = self.blocks == "dense" or (self.blocks == "auto" and not flat)
        return Plan(ordering, stairs, chunks(ordering, stairs, by_rows, self.prune), by_sides, cuts, dense)

    def _numbers(self, flat: bool) -> tuple[int, int]:
        """Returns the sizes of chunks as published for 2-D and 3-D, or numbers of chunks otherwise."""
        if self.partition != "size":
            return self.trsm_chunk or 10, self.syrk_chunk or 10
        product = (2000 if flat else 1000) if self.syrk == "squares" else (200 if flat else 1000)
        return self.trsm_chunk or (1000 if flat else 500), self.syrk_chunk or product

    def assemble(self, factor: Factor, b: sparse.csr_array, plan: Plan, like: arrays.Array) -> arrays.Array:
        x = placed(b, plan.ordering.position, plan.stairs.place, like)
        dense = plan.dense or not isinstance(like, np.ndarray)
        if self.trsm == "split-factor":
            split_factor(factor.lower, x, plan.parts, dense)
        else:
            split_sides(factor.lower, x, plan.stairs, plan.side_cuts, dense)
        product = squares if self.syrk == "squares" else stairs_by_columns
        return mirrored(product(x, plan.stairs, plan.product_cuts), plan.stairs.place)

    def work(self, plan: Plan) -> Work:
        n, stairs = plan.ordering.n, plan.stairs
        solve = updates = 0
        if self.trsm == "split-factor":
            for part in plan.parts:
                width = part.end - part.start
                if plan.dense:
                    solve += width * width * part.alive + 2 * len(part.rows) * len(part.columns) * part.alive
                else:
                    solve += (width + 2 * part.entries) * part.alive
                updates += int(part.alive > 0 and len(part.rows) > 0)
        else:
            for start, end in zip(plan.side_cuts[:-1].tolist(), plan.side_cuts[1:].tolist()):
                first = int(stairs.pivots[start])
                below = len(plan.ordering.rows) - int(plan.ordering.indptr[first])
                solve += (end - start) * ((n - first) ** 2 if plan.dense else n - first + 2 * below)
        product = 0
        for start, end in zip(plan.product_cuts[:-1].tolist(), plan.product_cuts[1:].tolist()):
            if self.syrk == "squares":
                alive = stairs.alive(end)
                product += (end - start) * alive * (alive + 1)
            else:
                width = end - start
                product += (n - int(stairs.pivots[start])) * width * (width + 1 + 2 * start)
        return Work(solve, product, updates)


def is_flat(n: int, sides: int) -> bool:
    """Says whether a subdomain looks two-dimensional: a square has about 4√n right-hand sides (5.7√n for elasticity), a cube far more."""
    return sides < 7 * n**0.5
