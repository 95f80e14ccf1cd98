"""A decision tree over counters: eight questions at most, which a person can read.

The simplest member of the published family; its scores have few values, so a share of 5 % false alarms is often out of its reach.

scikit-learn's, with balanced classes and at least five windows per leaf.

A member of the family of "Detecting Silent Data Corruption From Hardware Counters", IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .detection.technique import CounterDetector


@dataclass(frozen=True)
class CountersTree(CounterDetector):
    """Thresholds on counters, learned as a tree of depth 8."""

    kind: ClassVar[str] = "tree"
