"""No correction: every clock runs at the pace of its oscillator.

D. W. Allan, Statistics of atomic frequency standards, Proceedings of the IEEE 54(2), 1966.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.kernels import kernel

from .simulation.discipline import Discipline, Synchronised
from .simulation.world import PERIOD, Seen, World, look, wander

if TYPE_CHECKING:
    from .workload import ClockWork


@dataclass(frozen=True)
class Free(Synchronised):
    """Free-running clocks."""

    def start(self, work: ClockWork) -> Discipline:
        """Clocks that nobody corrects."""
        return _Free()


class _Free:
    def advance(self, world: World, seen: Seen, first: int, steps: int) -> None:
        """Plays the steps."""
        _run(world, seen, first, steps)


@kernel
def _run(world, seen, first, steps):  # type: ignore[no-untyped-def]
    for step in range(first, first + steps):
        for v in range(len(world.clock)):
            world.clock[v] += world.numbers[PERIOD] * world.rate[v]
        wander(world)
        look(world, seen, step)
