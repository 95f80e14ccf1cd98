"""The built-in graphs by name."""

from __future__ import annotations

import numpy as np

from .generation import communities, rmat
from .graph import Graph

#: Categories of ogbn-products, and the share of its edges that stays within one.
CATEGORIES, WITHIN = 47, 0.81
GRAPHS = ("rmat", "sbm", "products")


def made(name: str, exponent: int, rng: np.random.Generator) -> Graph:
    """A graph of 2**exponent vertices.

    `rmat` has 16 edges per vertex. `sbm` has 64 equal communities with 32 neighbours per vertex, of which 60 % are in the same community
    and 30 % in three others. `products` has the 47 categories of ogbn-products, of sizes that fall as 1 / rank, and 25 neighbours.
    """
    n = 1 << exponent
    if name == "rmat":
        return rmat(rng, exponent)
    if name == "sbm":
        return communities(rng, np.full(64, n // 64), degree=32, inside=0.6, friends=3, befriended=0.3)
    share = 1 / np.arange(1, CATEGORIES + 1)
    sizes = np.maximum(1, np.floor(n * share / share.sum())).astype(np.int64)
    sizes[0] += n - sizes.sum()
    return communities(rng, sizes, degree=25, inside=WITHIN)
