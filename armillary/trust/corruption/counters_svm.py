"""A support vector machine over counters, with a Gaussian kernel and C = 10.

scikit-learn solves for the vectors; the kernel is computed with sums in a fixed order. At most 1,500 windows teach, because the kernel is
their number squared.

A member of the family of "Detecting Silent Data Corruption From Hardware Counters", IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .detection.technique import CounterDetector


@dataclass(frozen=True)
class CountersSvm(CounterDetector):
    """The side of a curved border on which a window lies."""

    kind: ClassVar[str] = "svm"
