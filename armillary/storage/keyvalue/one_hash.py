"""One hash, one candidate bucket. Balanced allocations, SIAM Journal on Computing 1999, is what one choice is compared with.

It has the buckets and probes of `simd3` with other candidates, and inserts by first fit with early exit, stash and growth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .tables.bucket_map import BucketMap
from .tables.layout import LayoutName


@dataclass(frozen=True)
class OneHash(BucketMap):
    """One candidate bucket: what is full fails. Expected share at load L: E[(X - 16)+]/(16 L), X ~ Poisson(16 L)."""

    layout: ClassVar[LayoutName] = "one-hash"
