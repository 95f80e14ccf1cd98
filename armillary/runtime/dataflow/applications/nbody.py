"""N bodies, all pairs: forces between blocks by OpenCL, the motion of a block by a compiled loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.kernels import kernel as compiled
from armillary.runtime.dataflow.apis.api import Kernel
from armillary.runtime.dataflow.apis.opencl import ClSource

from . import sources
from .application import Application, Operation

MIX = {"forces": "opencl", "update": "numba"}
STEP = 1e-4


def nbody(
    blocks: int,
    block: int,
    steps: int,
    rng: np.random.Generator,
    mix: dict[str, str] | None = None,
    known: dict[str, Any] | None = None,
) -> Application:
    """`steps` steps of `blocks` × `block` bodies of equal mass."""
    on = {**MIX, **(mix or {})}
    places = [rng.random((block, 3)) for _ in range(blocks)]
    speeds = [np.zeros((block, 3)) for _ in range(blocks)]
    forces = [np.zeros((block, 3)) for _ in range(blocks)]
    start = np.concatenate(places)
    made = []
    for _ in range(steps):
        for b in range(blocks):
            for c in range(blocks):
                reads = tuple(dict.fromkeys((f"p{b}", f"p{c}")))
                made.append(Operation(FORCES, on["forces"], (places[b], places[c], forces[b], block), reads, (f"f{b}",)))
        for b in range(blocks):
            args = (places[b], speeds[b], forces[b], STEP)
            made.append(Operation(UPDATE, on["update"], args, (), (f"p{b}", f"v{b}", f"f{b}")))
    data = {f"{name}{b}": arrays[b] for name, arrays in (("p", places), ("v", speeds), ("f", forces)) for b in range(blocks)}
    known = {} if known is None else known

    def error() -> float:
        if "places" not in known:
            known["places"] = direct(start, steps)
        moved = np.abs(known["places"] - start).max()
        return float(np.abs(np.concatenate(places) - known["places"]).max() / moved / 1e-9)

    return Application("nbody", made, data, [(array, array.copy()) for array in data.values()], error)


def direct(places: np.ndarray, steps: int) -> np.ndarray:
    """The bodies' places after `steps` steps, without blocks."""
    places, speeds, pull = places.copy(), np.zeros_like(places), np.zeros_like(places)
    for _ in range(steps):
        loop_forces(places, places, pull, len(places))
        loop_update(places, speeds, pull, STEP)
    return places


@compiled
def loop_forces(p, q, f, n):  # type: ignore[no-untyped-def]
    """Adds to `f` the forces of the bodies at `q` on those at `p`."""
    for i in range(n):
        x, y, z = p[i, 0], p[i, 1], p[i, 2]
        fx, fy, fz = f[i, 0], f[i, 1], f[i, 2]
        for j in range(n):
            dx, dy, dz = q[j, 0] - x, q[j, 1] - y, q[j, 2] - z
            r = dx * dx + dy * dy + dz * dz + 1e-4
            w = 1.0 / (r * np.sqrt(r))
            fx += w * dx
            fy += w * dy
            fz += w * dz
        f[i, 0], f[i, 1], f[i, 2] = fx, fy, fz


@compiled
def loop_update(p, v, f, step):  # type: ignore[no-untyped-def]
    """Moves the bodies of a block, and clears their forces."""
    for i in range(p.shape[0]):
        for d in range(3):
            v[i, d] += step * f[i, d]
            p[i, d] += step * v[i, d]
            f[i, d] = 0.0


def _bodies(p: np.ndarray, *args: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    n = p.shape[0]
    return (n,), (32 if n % 32 == 0 else 1,)


def _numbers(p: np.ndarray, *args: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    n = p.size
    return (n,), (32 if n % 32 == 0 else 1,)


FORCES = Kernel(
    "forces",
    {"numba": loop_forces, "opencl": ClSource(sources.FORCES, "forces", _bodies)},
)
UPDATE = Kernel(
    "update",
    {"numba": loop_update, "opencl": ClSource(sources.UPDATE, "update", _numbers)},
)
