"""Least loaded: the server with the smallest requested share, as Kubernetes spreads pods, and its lowest-numbered free threads.

On Linux the lowest numbers are one thread of each core, so that siblings are only used once every core has an instance.
It is what Kubernetes calls LeastAllocated; Borg, Omega, and Kubernetes, ACM Queue 2016.
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
class LeastLoaded(Technique):
    """The emptiest server."""

    def scheduler(self, scene: Scene) -> RuleScheduler:
        """The rule in a scene."""
        return RuleScheduler(scene, least_loaded)


def least_loaded(packing: Packing, i: int) -> tuple[int, npt.NDArray[np.int64]]:
    """The server with the largest free share."""
    m = first_of(-packing.free / packing.fleet.threads, room(packing, i))
    return m, lowest(packing, m, int(packing.k[i]))
