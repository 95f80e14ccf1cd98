"""Every request goes to a random worker, which is what queueing theory compares with. Mitzenmacher, The power of two choices, 1996."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .images.policy import CachingPolicy, ImagePolicy


@dataclass(frozen=True)
class Random(Technique):
    """Dispatches image requests at random; stores evict first in, first out."""

    takes = frozenset({"image"})

    def policy(self) -> ImagePolicy:
        """Returns the policy, before it is told its workers."""
        return CachingPolicy("random", "fifo")
