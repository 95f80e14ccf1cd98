"""Regular decompositions of a global array into one block per rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

Ints: TypeAlias = npt.NDArray[np.int64]
#: Most dimensions of a variable.
MOST_DIMENSIONS = 8


def checked_shape(shape: Sequence[int], where: str) -> tuple[int, ...]:
    """A shape of 1 to 8 dimensions with at least one element each, and fewer than 2**62 elements together."""
    if not 1 <= len(shape) <= MOST_DIMENSIONS:
        raise InputError(f"found {len(shape)} dimensions; expected 1 to {MOST_DIMENSIONS}", where=where)
    total = 1
    for size in shape:
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise InputError(f"found a size of {size!r}; expected whole numbers of 1 or more", where=where)
        total *= int(size)
    if total >= 1 << 62:
        raise InputError(f"found {total:,} elements; expected fewer than {1 << 62:,}", where=where)
    return tuple(int(size) for size in shape)


def blocks(shape: Sequence[int], parts: Sequence[int]) -> tuple[Ints, Ints]:
    """(start, count) of each block when dimension i is cut into `parts[i]` parts as equal as can be; the last dimension runs fastest."""
    edges = [np.arange(p + 1, dtype=np.int64) * int(d) // p for d, p in zip(shape, parts, strict=True)]
    start = np.stack(np.meshgrid(*(e[:-1] for e in edges), indexing="ij"), -1).reshape(-1, len(edges))
    end = np.stack(np.meshgrid(*(e[1:] for e in edges), indexing="ij"), -1).reshape(-1, len(edges))
    return start, end - start


def cubes(ranks: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Parts per dimension, `ranks` together, whose blocks are as near to cubes as its factors allow."""
    parts = [1] * len(shape)
    for factor in reversed(_factors(ranks)):
        longest = max(range(len(shape)), key=lambda i: (shape[i] / parts[i], -i))
        parts[longest] *= factor
    return tuple(parts)


def slabs(ranks: int, shape: Sequence[int], dimension: int = -1) -> tuple[int, ...]:
    """Parts per dimension that cut one dimension alone."""
    parts = [1] * len(shape)
    parts[dimension] = ranks
    return tuple(parts)


def _factors(n: int) -> list[int]:
    found, p = [], 2
    while p * p <= n:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return found + ([n] if n > 1 else [])
