"""What virtual ranks did, for the timeline: collected as they run, put in order at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.comm.virtual.rank import Rank
    from armillary.comm.virtual.requests import VirtualRequest
    from armillary.engine import Timeline


class Record:
    """Spans of calls and computing, and arrows of messages.

    Ranks add to it in whatever order they were run; sorting makes the timeline the same for every order.
    """

    def __init__(self) -> None:
        self._spans: list[tuple[float, int, float, str, str]] = []
        self._arrows: list[tuple[float, int, float, int, int, int]] = []

    def call(self, rank: Rank, name: str, category: str, begin: float, received: Sequence[VirtualRequest]) -> None:
        """A call that lasted from `begin` to the rank's clock, and what it received."""
        end = rank.clock
        if end > begin:
            self._spans.append((begin, rank.number, -end, name, category))
        for request in received:
            if request.origin is not None and request.arrival is not None:
                sender, sent = request.origin
                arrived = min(request.arrival + request.cost, end)
                self._arrows.append((sent, sender, max(arrived, sent), rank.number, request.nbytes, request.tag))

    def timeline(self, tracks: Sequence[tuple[str, str]]) -> Timeline:
        """Everything in the order of time."""
        from armillary.engine import Timeline

        line = Timeline(tracks)
        for begin, track, end, name, category in sorted(self._spans):
            line.span(track, name, begin, -end, category)
        for sent, sender, received, receiver, nbytes, tag in sorted(self._arrows):
            line.arrow(sender, sent, receiver, received, size=nbytes, tag=tag)
        return line


def tracks(names: Sequence[str], nodes: Sequence[int]) -> list[tuple[str, str]]:
    """(node, rank) of each rank."""
    return [(names[node], f"rank {rank}") for rank, node in enumerate(nodes)]


def call_of(rank: Any, name: str, category: str, begin: float) -> None:
    """Note a span where there is a timeline."""
    record = rank.world.record
    if record is not None:
        record.call(rank, name, category, begin, ())
