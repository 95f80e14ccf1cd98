"""The three codes of the study of datatypes: `cfd`, `life` and `image`. Each updates the interior of a local array from its halo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import unknown

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Code:
    """A stencil code on a two-dimensional array with a halo of width 1.

    `start(shape)` gives the whole array with its outer edge. `prepare(local, low)` gives (two arrays, step) for a part of it, where
    `low` is the first cell of the part; `step(i)` computes the interior of array (i + 1) % 2 from array i % 2, whose halo must be filled.
    """

    name: str
    corners: str
    periodic: tuple[bool, bool]
    dtype: str
    start: Callable[[Sequence[int]], Array]
    prepare: Callable[[Array, Sequence[int]], tuple[tuple[Array, Array], Callable[[int], None]]]


def code(name: str, dtype: str = "") -> Code:
    """Return a code by its name; `life` takes uint8 or int32."""
    if name not in CODES:
        raise unknown("application", name, CODES)
    return CODES[name] if name != "life" else _life(dtype or "u1")


def _flow(shape: Sequence[int]) -> Array:
    """The stream function of a box with walls, an inlet at the bottom and an outlet on the right."""
    rows, columns = shape
    psi = np.zeros((rows + 2, columns + 2))
    inlet, width = columns // 3, max(1, columns // 6)
    across = np.arange(columns + 2)
    psi[-1] = np.clip(across - inlet, 0, width)
    psi[-1, -1] = 0.0
    along = np.arange(rows + 2)[::-1]
    psi[:, -1] = np.clip(width - np.clip(along - rows // 3, 0, None), 0, width)
    return psi


def _mean(local: Array, low: Sequence[int]) -> tuple[tuple[Array, Array], Callable[[int], None]]:
    """Jacobi: every value becomes the mean of its four neighbours."""
    other = local.copy()
    views = [_five_points(a, b) for a, b in ((local, other), (other, local))]

    def step(i: int) -> None:
        up, down, left, right, new = views[i % 2]
        np.add(up, down, out=new)
        np.add(new, left, out=new)
        np.add(new, right, out=new)
        np.multiply(new, 0.25, out=new)

    return (local, other), step


def _five_points(a: Array, b: Array) -> tuple[Array, ...]:
    return a[:-2, 1:-1], a[2:, 1:-1], a[1:-1, :-2], a[1:-1, 2:], b[1:-1, 1:-1]


def _soup(shape: Sequence[int], dtype: str) -> Array:
    """Cells that are alive by a hash of their place, about 3 in 8."""
    rows, columns = np.indices((shape[0] + 2, shape[1] + 2), dtype=np.uint64)
    mixed = rows * np.uint64(0x9E3779B97F4A7C15) ^ columns * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> np.uint64(31)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(30)
    return (mixed % np.uint64(8) < 3).astype(dtype)


def _life(dtype: str) -> Code:
    def prepare(local: Array, low: Sequence[int]) -> tuple[tuple[Array, Array], Callable[[int], None]]:
        other = local.copy()
        pair = (local, other)
        sides = [(slice(0, -2), slice(1, -1), slice(2, None))[i] for i in range(3)]
        count = np.empty_like(local[1:-1, 1:-1], order="C")

        def step(i: int) -> None:
            a, new = pair[i % 2], pair[(i + 1) % 2][1:-1, 1:-1]
            np.copyto(count, a[sides[0], sides[0]])
            for j, k in ((0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (2, 2)):
                np.add(count, a[sides[j], sides[k]], out=count)
            # B3/S23: alive with three neighbours, or with two and alive before.
            new[...] = (count | a[1:-1, 1:-1]) == 3

        return pair, step

    return Code("life", "diagonal", (True, True), dtype, lambda shape: _soup(shape, dtype), prepare)


def _picture(shape: Sequence[int]) -> Array:
    """A grey start with a sawtooth along the two fixed sides."""
    rows, columns = shape
    a = np.full((rows + 2, columns + 2), 255.0)
    tooth = (np.arange(columns + 2) * 32) % 256.0
    a[0], a[-1] = tooth, tooth[::-1]
    return a


def edges(shape: Sequence[int], low: Sequence[int], size: Sequence[int]) -> Array:
    """The edges of an image of discs, for the cells from `low` on."""
    rows = (np.arange(low[0], low[0] + size[0], dtype=np.int64))[:, None]
    columns = (np.arange(low[1], low[1] + size[1], dtype=np.int64))[None, :]
    return ((rows * rows + 3 * columns * columns) % 511 - 255).astype(float)


def _reconstruct(local: Array, low: Sequence[int]) -> tuple[tuple[Array, Array], Callable[[int], None]]:
    """Every value becomes a quarter of (its four neighbours minus the edge at its place)."""
    other = local.copy()
    edge = edges((), low, [n - 2 for n in local.shape])
    views = [_five_points(a, b) for a, b in ((local, other), (other, local))]

    def step(i: int) -> None:
        up, down, left, right, new = views[i % 2]
        np.add(up, down, out=new)
        np.add(new, left, out=new)
        np.add(new, right, out=new)
        np.subtract(new, edge, out=new)
        np.multiply(new, 0.25, out=new)

    return (local, other), step


CODES = {
    "cfd": Code("cfd", "none", (False, False), "f8", _flow, _mean),
    "life": _life("u1"),
    "image": Code("image", "none", (False, True), "f8", _picture, _reconstruct),
}


def alone(one: Code, shape: Sequence[int], steps: int) -> Array:
    """Return the interior after some steps on one rank; periodic sides wrap around by NumPy alone."""
    (first, second), step = one.prepare(one.start(shape), (0, 0))
    for i in range(steps):
        a = (first, second)[i % 2]
        if one.periodic[1]:
            a[1:-1, 0], a[1:-1, -1] = a[1:-1, -2], a[1:-1, 1]
        if one.periodic[0]:
            a[0], a[-1] = a[-2], a[1]
        step(i)
    return (first, second)[steps % 2][1:-1, 1:-1]
