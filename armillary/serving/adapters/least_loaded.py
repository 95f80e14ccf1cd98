"""Each request goes to the worker with the fewest expected seconds queued; devices evict what they loaded first. Winston, 1977."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .images.policy import CachingPolicy, ImagePolicy


@dataclass(frozen=True)
class LeastLoaded(Technique):
    """Dispatches image requests to the least loaded worker; stores evict first in, first out."""

    takes = frozenset({"image"})

    def policy(self) -> ImagePolicy:
        """Returns the policy, before it is told its workers."""
        return CachingPolicy("least-loaded", "fifo")
