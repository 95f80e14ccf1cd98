"""What packed halos and datatypes have in common: a strategy that ranks of MPI can be asked to follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.arena import Technique

if TYPE_CHECKING:
    from .measuring.measured import Strategy

CALLS = ("p2p", "p2p-persistent", "neighbourhood", "neighbourhood-persistent", "partitioned")


@dataclass(frozen=True)
class Exchanging(Technique):
    """A technique that is measured on live ranks."""

    def strategy(self) -> Strategy:
        """What the ranks are asked to do."""
        raise NotImplementedError
