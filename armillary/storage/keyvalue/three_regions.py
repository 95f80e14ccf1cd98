"""Three regions of equal size with one hash each (d-left without counting). How asymmetry helps load balancing, Journal of the ACM 2003.

It has the buckets and probes of `simd3` with other candidates, and inserts by first fit with early exit, stash and growth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .tables.bucket_map import BucketMap
from .tables.layout import LayoutName


@dataclass(frozen=True)
class ThreeRegions(BucketMap):
    """Three regions of equal size, one hash each."""

    layout: ClassVar[LayoutName] = "three-regions"
