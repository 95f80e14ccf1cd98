"""Spread by speed: fill servers in proportion to their speed, empty cores before siblings, the emptier socket first.

It needs no measurement at all, and is stronger than spreading by free threads where servers are not alike. The rule is ours; scheduling on
machines of unlike speeds is older (Bounds for list schedules on uniform processors, SIAM Journal on Computing 1980).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.arena import Technique

from .placement.packing import Packing
from .placement.rules import first_of, room, spread_cores
from .placement.scheduler import RuleScheduler, Scene


@dataclass(frozen=True)
class SpreadBySpeed(Technique):
    """The server with the least requested per speed."""

    def scheduler(self, scene: Scene) -> RuleScheduler:
        """The rule in a scene."""
        return RuleScheduler(scene, spread_by_speed)


def spread_by_speed(packing: Packing, i: int) -> tuple[int, npt.NDArray[np.int64]]:
    """The server on which the requested threads per speed are fewest with the instance."""
    fleet, k = packing.fleet, int(packing.k[i])
    m = first_of((fleet.threads - packing.free + k) / (fleet.threads * fleet.speed), room(packing, i))
    return m, spread_cores(packing, m, k)
