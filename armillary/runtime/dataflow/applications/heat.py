"""Heat by Gauss-Seidel sweeps in tiles: each cell uses the new values above and to the left, so tiles advance as a wavefront.

Tiles alternate between a compiled loop and OpenCL, as the squares of a chessboard do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.kernels import kernel as compiled
from armillary.runtime.dataflow.apis.api import Kernel
from armillary.runtime.dataflow.apis.opencl import ClSource

from . import sources
from .application import Application, Operation

MIX = ("numba", "opencl")


def heat(
    n: int, tile: int, steps: int, rng: np.random.Generator, mix: tuple[str, str] = MIX, known: dict[str, Any] | None = None
) -> Application:
    """`steps` sweeps over `n` × `n` cells inside a border that stays as it is."""
    if n % tile:
        raise InputError(f"heat: found n = {n} and tiles of {tile}; expected a multiple")
    grid = rng.random((n + 2, n + 2))
    start = grid.copy()
    nt = n // tile
    made = []
    for _ in range(steps):
        for i in range(nt):
            for j in range(nt):
                around = ((i - 1, j), (i, j - 1), (i, j + 1), (i + 1, j))
                reads = tuple(f"{a},{b}" for a, b in around if 0 <= a < nt and 0 <= b < nt)
                made.append(
                    Operation(SWEEP, mix[(i + j) % 2], (grid, n + 2, 1 + i * tile, 1 + j * tile, tile), reads, (f"{i},{j}",))
                )  # fmt: skip
    data = {f"{i},{j}": grid[1 + i * tile : 1 + (i + 1) * tile, 1 + j * tile : 1 + (j + 1) * tile] for i in range(nt) for j in range(nt)}
    known = {} if known is None else known

    def error() -> float:
        if "grid" not in known:
            known["grid"] = start.copy()
            for _ in range(steps):
                loop_sweep(known["grid"], n + 2, 1, 1, n)
        # Each cell is computed in the same order from the same numbers, so the bits are equal.
        return 0.0 if np.array_equal(grid, known["grid"]) else float("inf")

    return Application("heat", made, data, [(grid, start)], error)


@compiled
def loop_sweep(u, width, row, column, tile):  # type: ignore[no-untyped-def]
    """One sweep over a square of `tile` × `tile` cells; the caller has proved that it lies inside the border."""
    for i in range(row, row + tile):
        for j in range(column, column + tile):
            u[i, j] = 0.25 * (u[i - 1, j] + u[i, j - 1] + u[i, j + 1] + u[i + 1, j])


def _one(*args: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (1,), (1,)


SWEEP = Kernel("sweep", {"numba": loop_sweep, "opencl": ClSource(sources.SWEEP, "sweep", _one)})
