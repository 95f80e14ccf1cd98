"""Tiled factorisations that really run on threads: Cholesky, LU without pivoting, and QR with a flat tree."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from armillary.runtime.energy.traces.tasks import TaskTrace, of_run

from .runs import KERNELS


def getrf(a: np.ndarray) -> None:
    """a ← L and U of it, without pivoting."""
    for k in range(len(a) - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])


def lower(diagonal: np.ndarray, a: np.ndarray) -> None:
    """a ← L⁻¹ a."""
    a[...] = solve_triangular(diagonal, a, lower=True, unit_diagonal=True)


def upper(diagonal: np.ndarray, a: np.ndarray) -> None:
    """a ← a U⁻¹."""
    a[...] = solve_triangular(diagonal.T, a.T, lower=True).T


def update(left: np.ndarray, right: np.ndarray, a: np.ndarray) -> None:
    """a ← a − left · right."""
    a -= left @ right


def geqrt(a: np.ndarray, q: np.ndarray) -> None:
    """q, a ← Q and R of a."""
    q[...], a[...] = np.linalg.qr(a)


def ormqr(q: np.ndarray, a: np.ndarray) -> None:
    """a ← Qᵀ a."""
    a[...] = q.T @ a


def tsqrt(r: np.ndarray, a: np.ndarray, q: np.ndarray) -> None:
    """r, 0 ← R of r above a; q ← its Q."""
    q[...], stacked = np.linalg.qr(np.vstack((r, a)), mode="complete")
    r[...], a[...] = stacked[: len(r)], 0.0


def tsmqr(q: np.ndarray, top: np.ndarray, a: np.ndarray) -> None:
    """top above a ← Qᵀ (top above a)."""
    both = q.T @ np.vstack((top, a))
    top[...], a[...] = both[: len(top)], both[len(top) :]


def factorisation(kind: str, matrix: np.ndarray, tiles: int) -> Any:
    """The graph that factorises `matrix` in place: cholesky, lu or qr."""
    from armillary.tasks import shapes

    return shapes.cholesky(tiles, matrix) if kind == "cholesky" else _lu(matrix, tiles) if kind == "lu" else _qr(matrix, tiles)


def _cut(graph: Any, matrix: np.ndarray, tiles: int) -> dict[tuple[int, int], Any]:
    side = len(matrix) // tiles
    whole = graph.data("A", matrix)
    return {(i, j): whole[i * side : (i + 1) * side, j * side : (j + 1) * side] for i in range(tiles) for j in range(tiles)}


def _lu(matrix: np.ndarray, tiles: int) -> Any:
    from armillary.tasks import Graph

    graph = Graph("lu")
    a = _cut(graph, matrix, tiles)
    for k in range(tiles):
        graph.add(getrf, a[k, k], updates=[a[k, k]], name="getrf")
        for i in range(k + 1, tiles):
            graph.add(upper, a[k, k], a[i, k], reads=[a[k, k]], updates=[a[i, k]], name="trsm")
            graph.add(lower, a[k, k], a[k, i], reads=[a[k, k]], updates=[a[k, i]], name="trsm")
        for i in range(k + 1, tiles):
            for j in range(k + 1, tiles):
                graph.add(update, a[i, k], a[k, j], a[i, j], reads=[a[i, k], a[k, j]], updates=[a[i, j]], name="gemm")
    return graph


def _qr(matrix: np.ndarray, tiles: int) -> Any:
    from armillary.tasks import Graph

    graph = Graph("qr")
    a = _cut(graph, matrix, tiles)
    side = len(matrix) // tiles
    for k in range(tiles):
        q = graph.data(f"Q{k}", np.empty((side, side)))
        graph.add(geqrt, a[k, k], q, updates=[a[k, k]], writes=[q], name="geqrt")
        for j in range(k + 1, tiles):
            graph.add(ormqr, q, a[k, j], reads=[q], updates=[a[k, j]], name="ormqr")
        for i in range(k + 1, tiles):
            both = graph.data(f"Q{i},{k}", np.empty((2 * side, 2 * side)))
            graph.add(tsqrt, a[k, k], a[i, k], both, updates=[a[k, k], a[i, k]], writes=[both], name="tsqrt")
            for j in range(k + 1, tiles):
                graph.add(tsmqr, both, a[k, j], a[i, j], reads=[both], updates=[a[k, j], a[i, j]], name="tsmqr")
    return graph


def matrix_for(kind: str, side: int, rng: np.random.Generator) -> np.ndarray:
    """A random matrix that the factorisation takes: dominant on its diagonal, and symmetric for Cholesky."""
    a = rng.standard_normal((side, side))
    if kind == "cholesky":
        a = a + a.T
    return a + (3.0 * side if kind != "qr" else 0.0) * np.eye(side)


def really_ran(kind: str, tiles: int, tile: int, workers: int, policy: str, rng: np.random.Generator) -> tuple[TaskTrace, np.ndarray]:
    """The trace of a factorisation that ran on this machine's threads, one thread of BLAS each, and the tile of each task."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    from armillary.tasks import Threads

    graph = factorisation(kind, matrix_for(kind, tiles * tile, rng), tiles)
    with threadpool_limits(1):
        run = graph.run(Threads(workers), policy=policy).raise_first()
    work = [KERNELS[task.name] for task in graph.tasks]
    flops = np.array([each * tile**3 for each, _, _ in work])
    trace = of_run(run.trace, flops, np.array([moved * 8.0 * tile * tile for _, _, moved in work]))
    written: dict[tuple[int, str], int] = {}
    tiles_of = [written.setdefault((task.accesses[-1].data.id, str(task.accesses[-1].box)), len(written)) for task in graph.tasks]
    return trace, np.array(tiles_of, np.int64)[run.trace["task"][run.trace["worker"] >= 0]]
