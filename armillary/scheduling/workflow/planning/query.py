"""What a user asks for: a deadline, and limits on nodes, tiers and capacity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown
from armillary.scheduling.workflow.stages.workflow import Floats

from .configurations import Configurations, Layout


@dataclass(frozen=True)
class Query:
    """A conjunction of conditions; without a deadline, the least time is asked for."""

    deadline_s: float | None = None
    nodes_max: int | None = None
    tiers: tuple[str, ...] | None = None
    #: Bytes per node that files on local tiers may take.
    capacity: float | None = None

    def check(self, layout: Layout) -> None:
        """Raises an InputError for a condition that cannot be meant."""
        for tier in self.tiers or ():
            if tier not in layout.tiers:
                raise unknown("tier", tier, layout.tiers, where="tiers")
        for name, value in (("deadline_s", self.deadline_s), ("nodes_max", self.nodes_max), ("capacity", self.capacity)):
            if value is not None and not value >= 0:
                raise InputError(f"found {value!r}; expected a number that is not negative", where=name)

    def allows(self, configurations: Configurations, layout: Layout, local_bytes: Floats | None = None) -> npt.NDArray[np.bool_]:
        """Which configurations respect the limits; the deadline is left out."""
        found = np.ones(len(configurations), bool)
        if self.nodes_max is not None:
            found &= configurations.nodes <= self.nodes_max
        if self.tiers is not None:
            allowed = np.array([name in self.tiers for name in layout.tiers])
            found &= allowed[configurations.tier].all(1)
        if self.capacity is not None and local_bytes is not None:
            found &= local_bytes <= self.capacity
        return found
