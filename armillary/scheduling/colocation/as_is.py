"""As is: the places that a user's file gives, so that a compare says what they cost beside what a technique would choose.

An instance without a place gets one as `least-loaded` would give it, so on built-in work, which has no places, the two are the same.
A cpuset is written as the cpuset controller of Linux's cgroup v2 takes it (2019).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.arena import Technique

from .least_loaded import least_loaded
from .placement.packing import Packing
from .placement.scheduler import RuleScheduler, Scene


@dataclass(frozen=True)
class AsIs(Technique):
    """Leaves everything where it is."""

    def scheduler(self, scene: Scene) -> RuleScheduler:
        """The file's places."""
        start = scene.start

        def stay(packing: Packing, i: int) -> tuple[int, npt.NDArray[np.int64]]:
            place = start[i] if start else None
            free = place is not None and bool((packing.owner[place[0], place[1]] == -1).all())
            return place if place is not None and free else least_loaded(packing, i)

        return RuleScheduler(scene, stay)
