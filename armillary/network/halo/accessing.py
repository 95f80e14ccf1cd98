"""What the rungs of the ladder have in common: a way to run CloverLeaf's time step, on ranks that are here and on simulated GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import Technique

if TYPE_CHECKING:
    from .clover.deck import Deck
    from .views.ladder import Access
    from .views.model import StreamModel

#: When launches before an exchange are split into a frame and an inside.
SPLITS = ("auto", "always", "never")


@dataclass(frozen=True)
class Accessing(Technique):
    """A technique that reaches arrays in some way while CloverLeaf runs."""

    takes: ClassVar[frozenset[str]] = frozenset({"access", "gpus"})

    def access(self, on_gpu: bool) -> Access:
        """How it reaches arrays on the host, or on a GPU."""
        raise NotImplementedError

    def planned(self, model: StreamModel, deck: Deck, dims: tuple[int, int]) -> Access:
        """How it reaches arrays on simulated GPUs."""
        return self.access(True)
