"""Extrapolation in time: an element that jumps away from the line or the curve of its past is suspected.

Each iterate is compared with two extrapolations, a line through the last two and a curve through the last three; the one that was better
last time counts. Its worst error may be twice the worst of the last three.

After "Adaptive Impact-Driven Detection of Silent Data Corruption for HPC Applications", IEEE Transactions on Parallel and Distributed
Systems 2016; the bound by the last three errors is **our design**.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .detection.technique import AlgorithmDetector


@dataclass(frozen=True)
class Aid(AlgorithmDetector):
    """Alarms where an extrapolation is off by more than its bound."""

    needs: ClassVar[str] = "moves"
    check_name: ClassVar[str] = "aid"
    column: ClassVar[int] = 2
