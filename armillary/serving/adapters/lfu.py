"""Each request goes to the least loaded worker, whose stores evict what was used least often.

Mattson et al., Evaluation techniques for storage hierarchies, 1970.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .images.policy import CachingPolicy, ImagePolicy


@dataclass(frozen=True)
class Lfu(Technique):
    """Dispatches image requests to the least loaded worker; stores are LFU."""

    takes = frozenset({"image"})

    def policy(self) -> ImagePolicy:
        """Returns the policy, before it is told its workers."""
        return CachingPolicy("least-loaded", "lfu")
