"""Random worker for every request; what queueing theory compares with. Mitzenmacher, The power of two choices, 1996."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .image_policy import CachingPolicy, ImagePolicy


@dataclass(frozen=True)
class Random(Technique):
    """Image requests: random dispatch, fifo stores."""

    takes = frozenset({"image"})

    def policy(self) -> ImagePolicy:
        """The policy, before it is told its workers."""
        return CachingPolicy("random", "fifo")
