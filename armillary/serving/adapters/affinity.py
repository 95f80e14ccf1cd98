"""A worker that has the base model and the LoRAs, else the least loaded.

Cache-aware dispatch as in Ray Serve's model multiplexing, 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .image_policy import CachingPolicy, ImagePolicy


@dataclass(frozen=True)
class Affinity(Technique):
    """Image requests: affinity dispatch, lru stores."""

    takes = frozenset({"image"})

    def policy(self) -> ImagePolicy:
        """The policy, before it is told its workers."""
        return CachingPolicy("affinity", "lru")
