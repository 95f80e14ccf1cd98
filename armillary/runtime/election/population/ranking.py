"""What a technique of this arena is: something that has a protocol for every number of agents."""

from __future__ import annotations

from abc import abstractmethod

from armillary.arena import Technique

from .protocol import Protocol


class Ranking(Technique):
    """A self-stabilising ranking; the agent of rank 1 leads."""

    @abstractmethod
    def protocol(self, n: int) -> Protocol:
        """The protocol for n agents."""
