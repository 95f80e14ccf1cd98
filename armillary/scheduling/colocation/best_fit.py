"""Best fit: the server that is left with the fewest free threads, and its lowest-numbered ones.

Worst-case analysis of memory allocation algorithms, STOC 1972.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.arena import Technique

from .placement.packing import Packing
from .placement.rules import first_of, lowest, room
from .placement.scheduler import RuleScheduler, Scene


@dataclass(frozen=True)
class BestFit(Technique):
    """The fullest server that has room."""

    def scheduler(self, scene: Scene) -> RuleScheduler:
        """The rule in a scene."""
        return RuleScheduler(scene, best_fit)


def best_fit(packing: Packing, i: int) -> tuple[int, npt.NDArray[np.int64]]:
    """The server with the fewest free threads that are enough."""
    m = first_of(packing.free, room(packing, i))
    return m, lowest(packing, m, int(packing.k[i]))
