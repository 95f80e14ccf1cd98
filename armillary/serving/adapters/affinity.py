"""Each request goes to a worker that holds its base model and LoRAs, or else to the least loaded one.

Cache-aware dispatch as in Ray Serve's model multiplexing, 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .images.policy import CachingPolicy, ImagePolicy


@dataclass(frozen=True)
class Affinity(Technique):
    """Dispatches image requests by affinity; stores are LRU."""

    takes = frozenset({"image"})

    def policy(self) -> ImagePolicy:
        """Returns the policy, before it is told its workers."""
        return CachingPolicy("affinity", "lru")
