"""The layouts that `simd3` is compared with: the same buckets and probes, other candidates.

Multiple hashes over one region, or a region for each hash (d-left without counting), are the textbook forms of multiple-choice
hashing: Balanced allocations, SIAM Journal on Computing 1999; How asymmetry helps load balancing, Journal of the ACM 2003. All are
first fit with early exit, stash and growth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .layout import LayoutName
from .simd3 import BucketMap


@dataclass(frozen=True)
class OneHash(BucketMap):
    """One candidate bucket: what is full fails. Expected share at load L: E[(X - 16)+]/(16 L), X ~ Poisson(16 L)."""

    layout: ClassVar[LayoutName] = "one-hash"


@dataclass(frozen=True)
class TwoHash(BucketMap):
    """Two candidates in one region."""

    layout: ClassVar[LayoutName] = "two-hash"


@dataclass(frozen=True)
class ThreeHash(BucketMap):
    """Three candidates in one region."""

    layout: ClassVar[LayoutName] = "three-hash"


@dataclass(frozen=True)
class ThreeRegions(BucketMap):
    """Three regions of equal size, one hash each."""

    layout: ClassVar[LayoutName] = "three-regions"
