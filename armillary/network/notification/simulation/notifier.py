"""What all techniques of the arena share: a policy of progress for virtual ranks, and the way that a notification takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.arena import Technique, with_parameters
from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    from armillary.comm.virtual.progress import Policy

US = 1e-6
#: The seconds of one event in the handler, of one poll, and the events that a run of the handler takes.
HANDLER_US, POLL_US, BATCH = 0.2, 0.1, 16


class Notifier(Technique):
    """A way to notify a rank that computes."""

    def policy(self, cores: int = 4) -> Policy:
        """The policy of progress for ranks that have this many cores."""
        raise NotImplementedError

    def on_top_us(self, cores: int = 4) -> float:
        """The microseconds from the arrival of a message until the rank has heard of it in this way, which come on top of the message."""
        raise NotImplementedError


_POLICIES = {
    "poll-in-wait": "poll_in_wait:PollInWait",
    "poll-inserted": "poll_inserted:PollInserted",
    "block": "block:Block",
    "thread-own-core": "thread_own_core:ThreadOwnCore",
    "thread-shared-core": "thread_shared_core:ThreadSharedCore",
    "interrupt": "interrupt:Interrupt",
    "uintr": "uintr:Uintr",
    "adaptive": "adaptive:Adaptive",
}


def policy(name: str, cores: int = 4, **parameters: Any) -> Policy:
    """Return the policy of progress of a technique, for `comm.run(..., backend="virtual", progress=policy("uintr"))`.

    `cores` are those that each rank has; a progress thread takes one of them.
    """
    import importlib

    if name not in _POLICIES:
        raise unknown("notification", name, _POLICIES)
    module, _, attribute = _POLICIES[name].partition(":")
    kind = getattr(importlib.import_module(f"armillary.network.notification.{module}"), attribute)
    made: Notifier = with_parameters(kind, parameters, where=name)
    return made.policy(cores)


def check_cores(cores: int) -> None:
    """Raises InputError if a rank has no core that it can give to a thread."""
    if isinstance(cores, bool) or not isinstance(cores, int) or cores < 2:
        raise InputError(f"found {cores!r} cores per rank; expected at least 2, because the progress thread takes one", where="cores")
