"""Least-loaded dispatch with LRU stores. Mattson et al., Evaluation techniques for storage hierarchies, 1970."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .image_policy import CachingPolicy, ImagePolicy


@dataclass(frozen=True)
class Lru(Technique):
    """Image requests: least-loaded dispatch, lru stores."""

    takes = frozenset({"image"})

    def policy(self) -> ImagePolicy:
        """The policy, before it is told its workers."""
        return CachingPolicy("least-loaded", "lru")
