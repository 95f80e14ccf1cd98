"""Three hashes over one region. Balanced allocations, SIAM Journal on Computing 1999.

It has the buckets and probes of `simd3` with other candidates, and inserts by first fit with early exit, stash and growth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .tables.bucket_map import BucketMap
from .tables.layout import LayoutName


@dataclass(frozen=True)
class ThreeHash(BucketMap):
    """Three candidates in one region."""

    layout: ClassVar[LayoutName] = "three-hash"
