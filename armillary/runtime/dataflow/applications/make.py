"""The built-in applications by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.errors import InputError, unknown

from .application import Application
from .block import block
from .chains import empty, mix
from .cholesky import cholesky
from .heat import heat
from .nbody import nbody

#: The most kernels of one application, so that a size given by hand ends in a sentence.
MOST_KERNELS = 200_000
SIZES: dict[str, tuple[str, ...]] = {
    "cholesky": ("n", "tile"), "heat": ("n", "tile", "steps"), "nbody": ("blocks", "block", "steps"),
    "block": ("batch", "seq", "width", "layers"), "mix": ("chains", "length", "rounds"), "empty": ("chains", "length"),
}  # fmt: skip


def application(name: str, *sizes: int, seed: int | np.random.Generator = 0, **how: Any) -> Application:
    """A built-in application: `application("cholesky", 1024, 128)`; further parameters are those of its function."""
    if name not in SIZES:
        raise unknown("application", name, SIZES)
    if len(sizes) != len(SIZES[name]):
        raise InputError(f"found {len(sizes)} sizes; expected {', '.join(SIZES[name])}", where=name)
    for what, size in zip(SIZES[name], sizes):
        if not isinstance(size, int) or size < 1:
            raise InputError(f"{what}: found {size!r}; expected a whole number from 1", where=name)
    kernels = _kernels(name, sizes)
    if kernels > MOST_KERNELS:
        raise InputError(f"found sizes that make {kernels:,} kernels; expected at most {MOST_KERNELS:,}", where=name)
    rng = seed if isinstance(seed, np.random.Generator) else np.random.Generator(np.random.PCG64DXSM(seed))
    made: dict[str, Any] = {"cholesky": cholesky, "heat": heat, "nbody": nbody, "block": block, "mix": mix, "empty": empty}
    found: Application = made[name](*sizes, rng, **how)
    return found


def _kernels(name: str, sizes: tuple[int, ...]) -> int:
    if name == "cholesky":
        return max(1, sizes[0] // sizes[1]) ** 3 // 6
    if name == "heat":
        return (sizes[0] // sizes[1]) ** 2 * sizes[2]
    if name == "nbody":
        return sizes[0] ** 2 * sizes[2]
    if name == "block":
        return 40 * sizes[0] * sizes[3]
    return sizes[0] * sizes[1]
