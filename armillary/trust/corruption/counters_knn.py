"""Neighbours: of which kind are the 15 windows that look most alike?

Votes are weighted so that both classes count the same.

A member of the family of "Detecting Silent Data Corruption From Hardware Counters", IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .detection.technique import CounterDetector


@dataclass(frozen=True)
class CountersKnn(CounterDetector):
    """A vote of the 15 nearest windows."""

    kind: ClassVar[str] = "knn"
