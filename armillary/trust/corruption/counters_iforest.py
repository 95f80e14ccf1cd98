"""An isolation forest: windows that few random cuts set apart are odd. It learns from clean runs alone.

Nobody has to have seen a corruption before; scikit-learn's trees, scored by their mean path length.

A member of the family of "Detecting Silent Data Corruption From Hardware Counters", IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .detection.technique import CounterDetector


@dataclass(frozen=True)
class CountersIforest(CounterDetector):
    """Oddity by 200 random trees."""

    kind: ClassVar[str] = "iforest"
    supervised: ClassVar[bool] = False
