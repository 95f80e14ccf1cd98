"""Progress: what moves a long message on while its rank computes.

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
    """A policy of progress.

    Its kind is `in-calls`, `thread` (a helper thread that takes `core_share` of the rank's core), `nic`, or `interrupt` (which takes
    `cost` seconds of the rank's core).
    """

    kind: str = "in-calls"
    core_share: float = 0.0
    cost: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in PROGRESS:
            raise unknown("progress", str(self.kind), PROGRESS)
        if not 0.0 <= self.core_share < 1.0:
            raise InputError(f"core_share: found {self.core_share!r}; expected at least 0 and less than 1", where="progress")
        if not 0.0 <= self.cost < math.inf:
            raise InputError(f"cost: found {self.cost!r}; expected seconds, 0 or more", where="progress")


def thread(core_share: float = 0.05) -> Progress:
    """Return the policy of a helper thread that polls all the time, so that computing takes 1 / (1 - core_share) times as long."""
    return Progress("thread", core_share=core_share)


def interrupt(cost: float) -> Progress:
    """Return the policy of an interrupt for each message that arrives while the rank computes, which takes `cost` seconds of its core."""
    return Progress("interrupt", cost=cost)


def progress_of(found: Progress | str) -> Progress:
    """Return the policy itself, or the policy of this name with its default figures."""
    if isinstance(found, Progress):
        return found
    if found == "thread":
        return thread()
    if found == "interrupt":
        raise InputError('progress: found "interrupt"; expected interrupt(cost), because its cost has no default')
    return Progress(str(found))
