"""What the techniques of simulated exchanges have in common: a planner for a pattern."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import Technique

if TYPE_CHECKING:
    from .patterns.pattern import Pattern
    from .simulation.machine import Machine
    from .simulation.plans import Planner
    from .simulation.play import Played


@dataclass(frozen=True)
class Chosen(Technique):
    """A technique that chooses protocols on virtual ranks."""

    takes: ClassVar[frozenset[str]] = frozenset({"protocols"})

    def planner(self, pattern: Pattern, machine: Machine) -> Planner:
        """A planner for this pattern, which believes that the machine has these constants."""
        raise NotImplementedError

    def played(self, pattern: Pattern, machine: Machine) -> Played:
        """What the iterations take under that planner."""
        from .simulation.play import play

        return play(pattern, self.planner(pattern, machine))
