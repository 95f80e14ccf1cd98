"""Full core: whole cores only, as Kubernetes' CPU manager gives them with `full-pcpus-only`, on the least loaded server.

The option came with Kubernetes 1.22 (2021). An instance shares its cores with itself alone. Where no server has enough empty cores,
Kubernetes would leave the pod waiting; here it gets free threads of the least loaded server, because every technique must place every
instance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.arena import Technique

from .least_loaded import least_loaded
from .placement.packing import Packing
from .placement.rules import cores_needed, first_of, room, whole_cores
from .placement.scheduler import RuleScheduler, Scene


@dataclass(frozen=True)
class FullCore(Technique):
    """Never share a core with others."""

    def scheduler(self, scene: Scene) -> RuleScheduler:
        """The rule in a scene."""
        return RuleScheduler(scene, full_core)


def full_core(packing: Packing, i: int) -> tuple[int, npt.NDArray[np.int64]]:
    """Both threads of empty cores on the server with the largest free share."""
    k = int(packing.k[i])
    fits = room(packing, i) & (packing.empty >= cores_needed(packing, k))
    if not fits.any():
        return least_loaded(packing, i)
    m = first_of(-packing.free / packing.fleet.threads, fits)
    rows = whole_cores(packing, m, k)
    return (m, rows) if len(rows) == k else least_loaded(packing, i)
