"""First fit: the first server with enough free threads, and its lowest-numbered ones.

Worst-case analysis of memory allocation algorithms, STOC 1972.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.arena import Technique

from .placement.packing import Packing
from .placement.rules import lowest, room
from .placement.scheduler import RuleScheduler, Scene


@dataclass(frozen=True)
class FirstFit(Technique):
    """The first server that has room."""

    def scheduler(self, scene: Scene) -> RuleScheduler:
        """The rule in a scene."""
        return RuleScheduler(scene, first_fit)


def first_fit(packing: Packing, i: int) -> tuple[int, npt.NDArray[np.int64]]:
    """The first server with room, and its lowest free threads."""
    m = int(np.argmax(room(packing, i)))
    return m, lowest(packing, m, int(packing.k[i]))
