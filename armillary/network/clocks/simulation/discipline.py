"""What a technique is to the simulation: something that changes clocks once per measuring period."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Protocol

from armillary.arena import Technique

from .world import Seen, World

if TYPE_CHECKING:
    from armillary.network.clocks.bounds.budget import Bounds
    from armillary.network.clocks.workload import ClockWork


class Discipline(Protocol):
    """A technique that is prepared for one network."""

    def advance(self, world: World, seen: Seen, first: int, steps: int) -> None:
        """Plays steps `first` to `first + steps − 1`."""


class Synchronised(Technique):
    """A technique that keeps clocks together."""

    @abstractmethod
    def start(self, work: ClockWork) -> Discipline:
        """The technique, prepared for the work's network."""

    def bounds(self, work: ClockWork) -> Bounds | None:
        """What the skew cannot exceed by the technique's own theory, if it has one."""
        return None
