"""Other traffic: bursts on links, and tenants whose own aggregation holds slots of a switch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.workloads import toggles


@dataclass(frozen=True)
class Bursts:
    """Every link is independently free for `off_s` and then carries a `share` of other traffic for `on_s`, both exponential.

    With `slots` above 0, a tenant of every switch bursts in the same way and takes up to that many free slots. The pattern repeats every
    `cycle_s` seconds.
    """

    share: float = 0.0
    on_s: float = 10e-3
    off_s: float = 40e-3
    slots: int = 0
    cycle_s: float = 20.0

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise InputError(f"share: found {self.share}; expected 0 to less than 1 of a link")
        if not (self.on_s > 0 and self.off_s > 0 and 100 * (self.on_s + self.off_s) <= self.cycle_s <= 3600):
            raise InputError("on_s, off_s: expected seconds above 0; cycle_s: expected a hundred bursts or more, and at most an hour")
        if self.slots < 0:
            raise InputError(f"slots: found {self.slots}; expected 0 or more")

    def toggles(self, links: int, switches: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Returns (seconds, which) of all beginnings and ends in one cycle, in order; both ends of the cycle are quiet."""
        which = np.array([*(range(links) if self.share else ()), *(range(links, links + switches) if self.slots else ())], np.int64)
        if not len(which):
            return np.empty(0), which
        at, number = toggles(rng, len(which), on_s=self.on_s, off_s=self.off_s, cycle_s=self.cycle_s)
        return at, which[number]


CALM = Bursts()
