"""Where a key may go: the candidate buckets of a table, as rows of [hash seed, first bucket, number of buckets]."""

from __future__ import annotations

import itertools
from typing import Literal

import numpy as np

from armillary.errors import InputError

from .buckets import SEEDS

LayoutName = Literal["simd3", "one-hash", "two-hash", "three-hash", "three-regions"]
MOST_BUCKETS = 2**32 - 1


def layout_of(name: LayoutName, buckets: int, primary: float = 0.9) -> np.ndarray:
    """Returns the layout over at least `buckets` buckets, uint64 of shape (candidates, 3).

    `simd3` has two hashes over the first `primary` of the buckets and one over the rest; `one-hash`, `two-hash` and `three-hash` have
    one region; `three-regions` has a third of the buckets for each of three hashes. Every region has a bucket at least.
    """
    if not 1 <= buckets <= MOST_BUCKETS:
        raise InputError(f"found {buckets} buckets; expected 1 to {MOST_BUCKETS}", where="buckets")
    if name == "simd3":
        first = min(max(1, round(primary * buckets)), max(1, buckets - 1))
        rows = [(0, first), (0, first), (first, max(1, buckets - first))]
    elif name == "three-regions":
        edges = [max(3, buckets) * j // 3 for j in range(4)]
        rows = [(a, b - a) for a, b in itertools.pairwise(edges)]
    else:
        rows = [(0, buckets)] * {"one-hash": 1, "two-hash": 2, "three-hash": 3}[name]
    return np.array([(seed, start, count) for seed, (start, count) in zip(SEEDS, rows)], np.uint64)


def buckets_in(layout: np.ndarray) -> int:
    """Returns the number of buckets of a layout."""
    return int((layout[:, 1] + layout[:, 2]).max())
