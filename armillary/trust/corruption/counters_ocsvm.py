"""A one-class machine: a border around clean windows that leaves 2 % of them out.

It learns from clean runs alone, with the kernel of `counters-svm`.

A member of the family of "Detecting Silent Data Corruption From Hardware Counters", IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .detection.technique import CounterDetector


@dataclass(frozen=True)
class CountersOcsvm(CounterDetector):
    """The distance outside a border around clean windows."""

    kind: ClassVar[str] = "ocsvm"
    supervised: ClassVar[bool] = False
