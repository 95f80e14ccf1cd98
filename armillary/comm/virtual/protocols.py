"""Protocols: how the bytes of one message move, chosen by a function of (source, destination, bytes, iteration).

    between nodes   eager         the bytes go with the message, copied on both sides
                    rget          RTS; the receiver reads; FIN
                    rput          RTS, CTS; the sender writes
                    rput-cached   as rput the first time; then each receive that is posted sends a credit, and the sender writes at once
    inside a node   shm           the sender copies in and the receiver copies out, cell by cell
                    read          RTS; the receiver copies once
                    write         RTS, CTS; the sender copies once
                    shared-copy   RTS, CTS; the sender copies the first `share`, the receiver the rest
                    loopback      RTS; the node's NIC moves the bytes

The sender's choice travels with the message, so both ends follow it. Copies occupy the core of the rank that makes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from armillary.errors import InputError, unknown

BETWEEN = ("eager", "rget", "rput", "rput-cached")
INSIDE = ("shm", "read", "write", "shared-copy", "loopback")


@dataclass(frozen=True)
class Protocol:
    """One protocol with its parameters.

    A copy is made in pieces of `chunk` bytes with a poll of `poll` seconds between them, in which the rank handles events; with `chunk=0`
    it is made as a whole. Between nodes, pieces of `chunk` bytes are under way at most `window` at a time, and the completion of each
    releases the next; with `chunk=0` the NIC moves everything on its own. `share` is the sender's part of a shared copy.
    """

    name: str
    chunk: int = 0
    window: int = 2
    poll: float = 1e-7
    share: float = 0.5

    def __post_init__(self) -> None:
        if self.name not in (*BETWEEN, *INSIDE):
            raise unknown("protocol", str(self.name), (*BETWEEN, *INSIDE))
        for name, least in (("chunk", 0), ("window", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"{name}: found {value!r}; expected a whole number from {least}", where=f"protocol {self.name}")
        if not 0.0 <= self.poll < math.inf:
            raise InputError(f"poll: found {self.poll!r}; expected seconds, 0 or more", where=f"protocol {self.name}")
        if not 0.0 <= self.share <= 1.0:
            raise InputError(f"share: found {self.share!r}; expected 0 to 1", where=f"protocol {self.name}")


#: A protocol or its name for (source, destination, bytes, iteration), or None for what the run does without such a function. Ranks are
#: numbered as in the whole run, and `iteration` is what the sender's program set as `comm.iteration`.
Choice: TypeAlias = Callable[[int, int, int, int], "Protocol | str | None"]

_NAMED: dict[str, Protocol] = {}


def protocol_for(choice: Choice, source: int, destination: int, nbytes: int, iteration: int, near: bool) -> Protocol | None:
    """Return what the function chooses for a message, checked."""
    found = choice(source, destination, nbytes, iteration)
    if found is None:
        return None
    if isinstance(found, str):
        if found not in _NAMED:
            _NAMED[found] = Protocol(found)
        found = _NAMED[found]
    elif not isinstance(found, Protocol):
        raise InputError(f"protocol: found {type(found).__name__}; expected a Protocol, its name or None")
    known = INSIDE if near else BETWEEN
    if found.name not in known:
        place = "inside a node" if near else "between nodes"
        raise InputError(
            f"protocol: found {found.name} for a message from rank {source} to rank {destination}, {place}; expected {', '.join(known)}"
        )
    return found
