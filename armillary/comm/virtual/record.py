"""The record of what virtual ranks did: it is collected as they run and becomes the timeline at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.comm.virtual.rank import Rank
    from armillary.comm.virtual.requests import VirtualRequest
    from armillary.engine import Timeline


class Record:
    """Spans of calls and computing, and arrows of messages.

    Ranks add to it in the order in which they happen to run; sorting makes the timeline the same for every order.
    """

    def __init__(self) -> None:
        self._spans: list[tuple[float, int, float, str, str]] = []
        self._arrows: list[tuple[float, int, float, int, int, int]] = []

    def call(self, rank: Rank, name: str, category: str, begin: float, received: Sequence[VirtualRequest]) -> None:
        """Add a call that lasted from `begin` to the rank's clock, and the messages that it received."""
        end = rank.clock
        if end > begin:
            self._spans.append((begin, rank.number, -end, name, category))
        for request in received:
            if request.origin is not None and request.arrival is not None:
                sender, sent = request.origin
                arrived = min(request.arrival + request.cost, end)
                self._arrows.append((sent, sender, max(arrived, sent), rank.number, request.nbytes, request.tag))

    def handled(self, rank: Rank, begin: float, end: float) -> None:
        """Add a run of the handler on the rank's core."""
        self._spans.append((begin, rank.number, -end, "handler", "handler"))

    def timeline(self, tracks: Sequence[tuple[str, str]]) -> Timeline:
        """Return the timeline, with everything in the order of time."""
        from armillary.engine import Timeline

        line = Timeline(tracks)
        for begin, track, end, name, category in sorted(self._spans):
            line.span(track, name, begin, -end, category)
        for sent, sender, received, receiver, nbytes, tag in sorted(self._arrows):
            line.arrow(sender, sent, receiver, received, size=nbytes, tag=tag)
        return line


def tracks(names: Sequence[str], nodes: Sequence[int]) -> list[tuple[str, str]]:
    """Return the names of the node and of the rank for each rank."""
    return [(names[node], f"rank {rank}") for rank, node in enumerate(nodes)]


def call_of(rank: Any, name: str, category: str, begin: float) -> None:
    """Add a span from `begin` to the rank's clock if a timeline is recorded."""
    record = rank.world.record
    if record is not None:
        record.call(rank, name, category, begin, ())
