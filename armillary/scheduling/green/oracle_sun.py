"""GreenK8s with a perfect forecast: what a better forecaster could bring, not a bound.

The rules are those of GreenK8s, IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim
from armillary.learn import Recipe

from .forecasting.forecaster import Floats, perfect
from .greenk8s import GreenK8s
from .workload import GreenWork


@dataclass(frozen=True)
class OracleSun(GreenK8s):
    """GreenK8s that knows the sun of the next day."""

    oracle = True
    claims: ClassVar[tuple[Claim, ...]] = ()

    def expected_w(self, work: GreenWork, level: float) -> Floats:
        """The watts that will come."""
        return perfect(work.sun)

    def recipes(self) -> list[Recipe]:
        """It trains nothing."""
        return []
