"""Built-in graphs: R-MAT, and communities whose vertices have power-law degrees."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .graph import Graph

Floats = npt.NDArray[np.float64]


def rmat(rng: np.random.Generator, scale: int, *, edge_factor: int = 16, a: float = 0.57, b: float = 0.19, c: float = 0.19) -> Graph:
    """2**scale vertices and edge_factor edges per vertex, each of which falls into a quadrant of the matrix, and of that, and so on.

    The quadrants are taken with the probabilities a, b, c and 1 - a - b - c. Vertices are not renumbered, so that vertices with near
    numbers share many quadrants. Chakrabarti et al., R-MAT: a recursive model for graph mining, SDM 2004.
    """
    edges = edge_factor << scale
    source, target = np.zeros(edges, np.int32), np.zeros(edges, np.int32)
    for _ in range(scale):
        drawn = rng.random(edges, np.float32)
        low = drawn >= a + b
        right = (drawn >= a) & ~low | (drawn >= a + b + c)
        source = 2 * source + low
        target = 2 * target + right
    return Graph.of(source, target, 1 << scale)


def communities(
    rng: np.random.Generator, sizes: npt.ArrayLike, *, degree: float, inside: float, friends: int = 0, befriended: float = 0.0,
    exponent: float = 2.5,
) -> Graph:  # fmt: skip
    """Communities of these sizes, numbered one after the other, with `degree` edges per vertex on average before repeated ones go.

    A share `inside` of the edges stays in the community of its source, a share `befriended` goes to one of `friends` other communities
    that each community draws once, and the rest goes anywhere. Ends of edges are drawn by vertex weights, whose density falls with
    w**-exponent, as in Chung and Lu, Connected components in random graphs with given expected degree sequences, 2002.
    """
    sizes = np.asarray(sizes, np.int64)
    n, ends = int(sizes.sum()), np.cumsum(sizes)
    # No vertex has more than the square root of all weights, so that few edges are drawn twice.
    weight = np.minimum((1 - rng.random(n)) ** (-1 / (exponent - 1)), np.sqrt(n))
    total = np.concatenate([[0.0], np.cumsum(weight)])
    edges = round(n * degree / 2)
    source = _drawn(rng, total, np.zeros(edges), np.full(edges, total[-1]))
    home = np.searchsorted(ends, source, side="right")
    kind = rng.random(edges)
    known = rng.integers(len(sizes), size=(len(sizes), max(friends, 1)))
    away = known[home, rng.integers(max(friends, 1), size=edges)]
    there = np.where(kind < inside, home, away)
    low, high = total[ends[there] - sizes[there]], total[ends[there]]
    anywhere = kind >= inside + befriended
    low, high = np.where(anywhere, 0.0, low), np.where(anywhere, total[-1], high)
    return Graph.of(source, _drawn(rng, total, low, high), n)


def _drawn(rng: np.random.Generator, total: Floats, low: Floats, high: Floats) -> npt.NDArray[np.int64]:
    """Vertices drawn by weight from the ranges whose summed weights lie between low and high."""
    found = np.searchsorted(total, low + rng.random(len(low)) * (high - low), side="right") - 1
    return np.clip(found, 0, len(total) - 2)
