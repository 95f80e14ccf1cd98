"""The solvers by name."""

from __future__ import annotations

from .bicgstab import BiCgStab
from .cg import Cg
from .jacobi import Jacobi
from .pagerank import PageRank
from .solver import Solver
from .spgemm import SpGemm
from .spmv import Spmv
from .sssp import Sssp
from .trisolve import TriSolve

SOLVERS: dict[str, type[Solver]] = {
    one.name: one for one in (Spmv, Cg, Jacobi, BiCgStab, PageRank, TriSolve, SpGemm, Sssp)
}
