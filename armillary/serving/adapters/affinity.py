"""Each request goes to a worker that holds its base model and LoRAs, or else to the least loaded one.

Cache-aware dispatch as in Ray Serve's model multiplexing, 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .images.policy import CachingPolicy, ImagePolicy


@dataclass(frozen=True)
class Affinity(Technique):
    """Image requests: affinity dispatch, lru stores."""

    takes = frozenset({"image"})

    def policy(self) -> ImagePolicy:
        """The policy, before it is told its workers."""
        return CachingPolicy("affinity", "lru")
