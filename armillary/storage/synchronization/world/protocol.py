"""What a protocol is to the simulator: one machine for each node, without clocks, sockets or files of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

from armillary.arena import Technique

from .schedule import Operation

#: Bytes that a message costs beside what it carries, the same for every protocol.
HEADER_BYTES = 32
RECORD_BYTES = 64


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds, as the numbers of the user operations that wrote its lines, and its size in bytes."""

    lines: tuple[int, ...]
    size: int


class Shown(NamedTuple):
    """One version of a file as a replica shows it; `content` is None where the replica knows that it was deleted."""

    ops: tuple[int, ...]
    content: Content | None


class Act(NamedTuple):
    """A user operation with the simulator's number for it; the number is a stamp for the count, no part of any protocol."""

    number: int
    operation: Operation


class Message(NamedTuple):
    """What travels; `paths` are the files that it carries and `size` its bytes."""

    kind: str
    body: Any
    size: int = HEADER_BYTES
    paths: frozenset[str] = frozenset()


class Host(Protocol):
    """What the simulator offers a node."""

    name: str
    peers: tuple[str, ...]

    def now(self) -> float:
        """Returns true seconds, for retries and never for ordering."""
        ...

    def clock(self) -> float:
        """Returns what this node's own clock shows, in seconds."""
        ...

    def send(self, peer: str, message: Message) -> None:
        """Puts a message on the link; it may be lost, doubled or late."""
        ...

    def after(self, delay_s: float, call: Callable[..., object], *args: Any) -> None:
        """Calls later."""
        ...

    def shows(self, ops: tuple[int, ...]) -> None:
        """Tells the count that the effects of these operations became visible here."""
        ...

    def conflict(self, mine: tuple[int, ...], theirs: tuple[int, ...]) -> None:
        """Tells the count that a conflict between these operations' versions was raised here."""
        ...


class Node(Protocol):
    """One end of a protocol: a replica, or the server of a star."""

    def local(self, act: Act) -> bool:
        """Does what the user asks; False: refused."""
        ...

    def receive(self, sender: str, message: Message) -> None:
        """Takes a message."""
        ...

    def link(self, peer: str, up: bool) -> None:
        """Hears that the link to `peer` came up or went down."""
        ...

    def round(self) -> None:
        """Makes one synchronisation round, as a user's `sync now`."""
        ...

    def status(self) -> str:
        """Tells its user "in sync", "conflict", "waiting" or "in doubt"."""
        ...

    def look(self, path: str) -> tuple[Shown, ...]:
        """Returns the versions shown under `path`, and the deletes known there."""
        ...

    def tree(self) -> Mapping[str, tuple[Content, ...]]:
        """Returns all that is visible."""
        ...

    def safe_elsewhere(self, path: str) -> bool:
        """Returns whether the node knows that another has what it shows at `path`, so that the content may be dropped here."""
        ...

    def metadata_bytes(self) -> int:
        """Returns the bytes kept beside the contents."""
        ...


@runtime_checkable
class Tracked(Protocol):
    """A node that says where its tree has changed, so that nobody has to look through all of it.

    A place is a path, or whatever the node keeps contents by; all places together show what `tree` shows.
    """

    #: Places that may show something else since somebody last emptied this.
    changed: set[str]

    def contents(self, place: str) -> Iterable[Content]:
        """Yields the contents shown there now."""
        ...


class SyncProtocol(Technique):
    """A technique of this arena: it says over which links it runs and makes its nodes."""

    topology: ClassVar[Literal["star", "mesh"]] = "mesh"

    def node(self, host: Host) -> Node:
        """Makes the machine for one node."""
        raise NotImplementedError

    def server(self, host: Host) -> Node:
        """Makes the machine of the server, which only stars have."""
        raise NotImplementedError


def written(act: Act, seen: Content | None) -> Content:
    """Returns the content after a write, or after an append to what was seen."""
    op = act.operation
    if op.op == "append" and seen is not None:
        return Content((*seen.lines, act.number), seen.size + op.size)
    return Content((act.number,), op.size)
