"""An autoencoder: what four numbers cannot hold of a window was not in the clean ones.

Layers of 16, 4 and 16 units, trained on clean runs alone; the score is the squared error.

A member of the family of "Detecting Silent Data Corruption From Hardware Counters", IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .detection.technique import CounterDetector


@dataclass(frozen=True)
class CountersAutoencoder(CounterDetector):
    """The error of squeezing a window through four units."""

    kind: ClassVar[str] = "autoencoder"
    supervised: ClassVar[bool] = False
