"""Stamps: every cell of a halo says whose it is, so that a halo at the wrong place cannot go unseen.

The stamp of an interior cell is a hash of (rank of its owner, its index there). Every rank can compute what its halo must be, because all
ranks know the shapes of all; no message is needed for that.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .geometry import Transfer

Array = np.ndarray[Any, Any]
#: The bytes of a cell that no exchange wrote.
UNTOUCHED = 0xA5


def stamped(rank: int, shape: Sequence[int], width: int, dtype: np.dtype[Any], like: Array | None = None) -> Array:
    """Return an array whose interior has the rank's stamps; in the halo each byte is `UNTOUCHED`."""
    found = np.empty_like(like) if like is not None else np.empty(shape, dtype)
    found[...] = np.frombuffer(bytes([UNTOUCHED]) * dtype.itemsize, dtype)[0]
    found[tuple(slice(width, n - width) for n in shape)] = stamps(rank, [n - 2 * width for n in shape], dtype)
    return found


def stamps(rank: int, inside: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Return the stamps of the interior of a rank, as whole numbers of at most 7 bits, 15, or 23 that each type can hold."""
    with np.errstate(over="ignore"):
        index = np.arange(int(np.prod(inside)), dtype=np.uint64).reshape(inside)
        mixed = index * np.uint64(0x9E3779B97F4A7C15) + np.uint64(rank + 1) * np.uint64(0xD1B54A32D192ED03)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(32)
    bits = 7 if dtype.itemsize == 1 else 10 if dtype.itemsize == 2 else 23
    return (mixed & np.uint64((1 << bits) - 1)).astype(dtype)


def expected(
    rank: int,
    shapes: Sequence[Sequence[int]],
    neighbour: Callable[[tuple[int, ...]], int],
    width: int,
    dtype: np.dtype[Any],
    phases: Sequence[Sequence[Transfer]],
    like: Array | None = None,
) -> Array:
    """Return what the rank's stamped array must be after an exchange; `neighbour` gives the rank at an offset, or a negative number."""
    shape = shapes[rank]
    found = stamped(rank, shape, width, dtype, like)
    axes = len(shape)
    offsets = {t.offset for phase in phases for t in phase}
    corners = len(phases) > 1 or any(sum(map(abs, o)) > 1 for o in offsets)
    # Where ranks are few, one of them is the neighbour on several sides.
    inside: dict[int, Array] = {}
    for offset in itertools.product((-1, 0, 1), repeat=axes):
        if not any(offset) or (not corners and sum(map(abs, offset)) > 1):
            continue
        owner = neighbour(offset)
        if owner < 0:
            continue
        if owner not in inside:
            inside[owner] = stamps(owner, [n - 2 * width for n in shapes[owner]], dtype)
        theirs = inside[owner]
        place, part = [], []
        for x, n in zip(offset, shape):
            place.append(slice(0, width) if x < 0 else slice(n - width, n) if x > 0 else slice(width, n - width))
            part.append(slice(-width, None) if x < 0 else slice(0, width) if x > 0 else slice(None))
        found[tuple(place)] = theirs[tuple(part)]
    return found


def same_bits(a: Array, b: Array) -> bool:
    """Return whether two arrays have the same bytes in every cell."""
    return a.shape == b.shape and a.dtype == b.dtype and np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
