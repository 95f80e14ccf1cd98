"""Who moves a long message on while its rank computes.

rank 1   irecv |====== compute ======| wait
rank 0     RTS ---> (nobody looks)     CTS <---  in-calls: the transfer begins when rank 1 is in a call again
rank 0     RTS ---> CTS <--- data --->           thread, nic, interrupt: it begins when the RTS arrives
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from armillary.errors import InputError, unknown

PROGRESS = ("in-calls", "thread", "nic", "interrupt")


@dataclass(frozen=True)
class Progress:
    """A policy: `in-calls`, `thread` (a helper that takes `core_share` of the rank's core), `nic`, or `interrupt` (`cost` seconds)."""

    kind: str = "in-calls"
    core_share: float = 0.0
    cost: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in PROGRESS:
            raise unknown("progress", str(self.kind), PROGRESS)
        if not 0.0 <= self.core_share < 1.0:
            raise InputError(f"core_share: found {self.core_share!r}; expected 0 up to 1, excluded", where="progress")
        if not 0.0 <= self.cost < math.inf:
            raise InputError(f"cost: found {self.cost!r}; expected seconds, 0 or more", where="progress")


def thread(core_share: float = 0.05) -> Progress:
    """A helper thread that looks all the time: computing takes 1 / (1 - core_share) as long."""
    return Progress("thread", core_share=core_share)


def interrupt(cost: float) -> Progress:
    """An interrupt for each message that arrives while the rank computes: `cost` seconds of its core."""
    return Progress("interrupt", cost=cost)


def progress_of(found: Progress | str) -> Progress:
    """The policy itself, or that of this name with its usual figures."""
    if isinstance(found, Progress):
        return found
    if found == "thread":
        return thread()
    if found == "interrupt":
        raise InputError('progress: found "interrupt"; expected interrupt(cost), which says what one costs')
    return Progress(str(found))
