"""Each request to the worker with the fewest expected seconds queued; devices drop what they loaded first. Winston, 1977."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .image_policy import CachingPolicy, ImagePolicy


@dataclass(frozen=True)
class LeastLoaded(Technique):
    """Image requests: least-loaded dispatch, fifo stores."""

    takes = frozenset({"image"})

    def policy(self) -> ImagePolicy:
        """The policy, before it is told its workers."""
        return CachingPolicy("least-loaded", "fifo")
