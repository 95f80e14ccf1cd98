"""How fast a large sparse matrix is permuted and a tenth of it extracted, beside SciPy, GraphBLAS and PETSc where they are installed.

    python benchmarks/sparse_speed.py [--exponent 20] [--entries 16] [--threads 2] [--rounds 3]

GraphBLAS is python-graphblas 2025.2.0 with suitesparse-graphblas 10.1.1.0; 10.5 lacks a constant that the former asks for.

All in one process and in turn; the ratio of the medians counts, and the ratio of CPU seconds where the machine is shared.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.sparse as sp

from armillary import comm
from armillary.numerics.sparse import DistributedMatrix, assign, extract, permute


def work(exponent: int, entries: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Draws a random matrix with `entries` entries per row, and two permutations."""
    rng = np.random.default_rng(0)
    n = 1 << exponent
    pointers = np.arange(0, n * entries + 1, entries, dtype=np.int32)
    matrix = sp.csr_array((rng.random(n * entries), rng.integers(0, n, n * entries).astype(np.int32), pointers), shape=(n, n))
    matrix.sum_duplicates()
    return matrix, rng.permutation(n), rng.permutation(n)


def by_scipy(matrix: Any, p: np.ndarray, q: np.ndarray) -> Any:
    """Fancy indexing and a sort."""
    found = matrix[p][:, q]
    found.sort_indices()
    return found


def over_ranks(matrix: Any, p: np.ndarray, q: np.ndarray, ranks: int) -> float:
    """Seconds of the permutation alone, on threads as ranks."""

    def program(c: Any) -> float:
        dealt = DistributedMatrix.from_scipy(matrix, c)
        c.barrier()
        start = time.perf_counter()
        permute(dealt, p, q)
        c.barrier()
        return time.perf_counter() - start

    return max(comm.run(program, ranks=ranks).values)


def peers(matrix: Any, p: np.ndarray, q: np.ndarray, tenth: tuple[np.ndarray, np.ndarray]) -> dict[str, Callable[[], Any]]:
    """Returns the permutation and the extraction by the libraries that are installed."""
    found: dict[str, Callable[[], Any]] = {}
    if find_spec("graphblas") is None:
        print("GraphBLAS: skipped, python-graphblas is not installed")
    else:
        gb = import_module("graphblas")
        given = gb.io.from_scipy_sparse(matrix)
        found["GraphBLAS"] = lambda: given[p, q].new()
        found["GraphBLAS extract"] = lambda: given[tenth[0], tenth[1]].new()
    if find_spec("petsc4py") is None:
        print("PETSc: skipped, petsc4py is not installed")
    else:
        PETSc = import_module("petsc4py.PETSc")
        given = PETSc.Mat().createAIJ(matrix.shape, csr=(matrix.indptr, matrix.indices, matrix.data))
        rows, cols = (PETSc.IS().createGeneral(one.astype(np.int32)) for one in (p, q))
        found["PETSc"] = lambda: given.permute(rows, cols)
    return found


def main() -> None:
    """Prints seconds and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exponent", type=int, default=20)
    parser.add_argument("--entries", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    matrix, p, q = work(options.exponent, options.entries)
    tenth = p[: p.size // 10], q[: q.size // 10]
    batch = sp.random_array((tenth[0].size, tenth[1].size), density=1e-6, rng=np.random.default_rng(1), format="csc")
    given: dict[str, Callable[[], Any]] = {
        "SciPy": lambda: by_scipy(matrix, p, q),
        "permute": lambda: permute(matrix, rows=p, cols=q, threads=options.threads),
        **peers(matrix, p, q, tenth),
        "SciPy extract": lambda: by_scipy(matrix, *tenth),
        "extract": lambda: extract(matrix, *tenth, threads=options.threads),
        "assign": lambda: assign(matrix, *tenth, batch, threads=options.threads),
    }
    small = work(8, 4)
    permute(*small)
    extract(small[0], small[1], small[2])
    assign(small[0], small[1][:9], small[2][:9], small[0][:9, :9])
    wall: dict[str, list[float]] = {name: [] for name in given}
    cpu: dict[str, list[float]] = {name: [] for name in given}
    for _ in range(options.rounds):
        for name, call in given.items():
            start, used = time.perf_counter(), time.process_time()
            call()
            wall[name].append(time.perf_counter() - start)
            cpu[name].append(time.process_time() - used)
    print(f"{matrix.shape[0]} rows, {matrix.nnz} entries, {options.threads} threads, {options.rounds} rounds")
    for name in given:
        print(f"{name:16} {statistics.median(wall[name]):7.3f} s   {statistics.median(cpu[name]):7.3f} CPU s")
    for name in wall:
        if name.startswith(("SciPy", "GraphBLAS", "PETSc")):
            ours = "extract" if name.endswith("extract") else "permute"
            clock, used = (statistics.median(one[name]) / statistics.median(one[ours]) for one in (wall, cpu))
            print(f"{ours} over {name}: {clock:.2f}x by the clock, {used:.2f}x by CPU")
    for ranks in (1, 2, 4):
        print(f"distributed, {ranks} ranks on threads: {min(over_ranks(matrix, p, q, ranks) for _ in range(2)):.3f} s")


if __name__ == "__main__":
    main()
