"""A perceptron over counters with 64 and 32 units.

Trained by Adam on cross-entropy with balanced classes; sums are in a fixed order.

A member of the family of "Detecting Silent Data Corruption From Hardware Counters", IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .detection.technique import CounterDetector


@dataclass(frozen=True)
class CountersMlp(CounterDetector):
    """A small network over one window."""

    kind: ClassVar[str] = "mlp"
