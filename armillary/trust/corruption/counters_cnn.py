"""A convolution over time: eight windows in a row, two layers of width 3.

It can see a change that lasts, where the others see one window and its difference to the one before.

A member of the family of "Detecting Silent Data Corruption From Hardware Counters", IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .detection.technique import CounterDetector


@dataclass(frozen=True)
class CountersCnn(CounterDetector):
    """A small network over eight windows."""

    kind: ClassVar[str] = "cnn"
