"""Progress: what moves a long message on while its rank computes.

    rank 1   irecv |====== compute ======| wait
    rank 0     RTS ---> (nobody looks)     CTS <---  in-calls: the transfer begins when rank 1 is in a call again
    rank 0     RTS ---> CTS <--- data --->           thread, nic, interrupt: it begins when the RTS arrives
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    from armillary.comm.virtual.protocols import Choice

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


#: How events reach a rank that computes.
WHILE_COMPUTING = ("never", "poll", "interrupt", "helper")


@dataclass(frozen=True)
class Policy:
    """A policy of progress with separate costs, in seconds. With no cost at all and `"interrupt"` it is `nic`.

    An *event* is what a protocol waits for: an RTS, a CTS, a completed chunk, the next stage of a staged collective, and a message that has
    no receive yet. With `completions`, transfers that are complete are events too. `computing` says how events reach a rank that computes:

        never        in its next call
        poll         the program polls every `every` seconds of computing, and each poll costs `poll`
        interrupt    `detect` seconds after the event, a handler runs on the rank's core
        helper       another thread, on a core of its own, sees it `detect` seconds later and runs the handler there

    A run of the handler costs `switch` + `entry`, `handler` for each event, and `exit` + `switch`; it takes all events that are there, at
    most `batch`, and looks once more before it leaves. Detection takes up to `spread` more seconds (uniform, drawn for each rank from the
    run's seed). All costs fall on the core of the rank that was computing, and push its work back; a sender pays nothing for them. A helper
    pays on its own core instead, and the rank's computing takes 1 / (1 - core_share) times as long.

    A rank that waits polls, unless it sleeps: then it wakes `wake` seconds after an event. An interrupt stays disarmed while the rank waits
    (`armed_in_wait=True` is the ablation) and costs `rearm` at the end of each wait. With `lock`, what interrupts a call only notes that
    there is something to do, and the call does it at its end.

    With `otherwise`, the rank follows that policy instead while there are more than `above` events per second, measured over `during`
    seconds, and returns when there are less than half as many. `protocol` chooses the protocol of each message.
    """

    computing: str = "interrupt"
    detect: float = 0.0
    spread: float = 0.0
    entry: float = 0.0
    handler: float = 0.0
    exit: float = 0.0
    switch: float = 0.0
    wake: float = 0.0
    rearm: float = 0.0
    every: float = 50e-6
    poll: float = 0.0
    core_share: float = 0.0
    batch: int = 16
    lock: bool = False
    armed_in_wait: bool = False
    completions: bool = False
    otherwise: Policy | None = None
    above: float = math.inf
    during: float = 1e-3
    protocol: Choice | None = None

    def __post_init__(self) -> None:
        if self.computing not in WHILE_COMPUTING:
            raise unknown("way to learn of events while computing", str(self.computing), WHILE_COMPUTING)
        for name in ("detect", "spread", "entry", "handler", "exit", "switch", "wake", "rearm", "poll"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < math.inf:
                raise InputError(f"{name}: found {value!r}; expected seconds, 0 or more", where="progress")
        for name in ("every", "during", "above"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0.0:
                raise InputError(f"{name}: found {value!r}; expected a number above 0", where="progress")
        if not 0.0 <= self.core_share < 1.0:
            raise InputError(f"core_share: found {self.core_share!r}; expected at least 0 and less than 1", where="progress")
        if isinstance(self.batch, bool) or not isinstance(self.batch, int) or self.batch < 1:
            raise InputError(f"batch: found {self.batch!r}; expected a whole number from 1", where="progress")
        if self.otherwise is not None and self.otherwise.otherwise is not None:
            raise InputError("otherwise: found a policy with a policy of its own; expected one without", where="progress")

    @property
    def enters_calls(self) -> bool:
        """Whether the handler may run in the middle of a call."""
        return self.computing == "interrupt" and not self.lock


def policy_of(progress: Progress, protocol: Choice | None) -> Policy:
    """Return the policy with separate costs that does what this one does, with a choice of protocols."""
    how = {"in-calls": "never", "thread": "helper", "nic": "interrupt", "interrupt": "interrupt"}[progress.kind]
    return Policy(how, entry=progress.cost, core_share=progress.core_share, protocol=protocol)
