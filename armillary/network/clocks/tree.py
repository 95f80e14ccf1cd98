"""Master and slaves along a tree: every clock follows the one above it, up to a root, as in PTP and NTP.

Each clock measures its parent in both directions and moves by a part of the difference; a second part corrects its frequency, so that a
steady drift leaves no offset. The errors of all links up to the root add up. Neighbours in the network that are not neighbours in the tree
differ by the errors along both of their ways to the root, so on a ring one pair has the errors of the whole ring between it.

IEEE Standard 1588-2019, and linuxptp's proportional-integral servo.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.arena import parameter
from armillary.kernels import kernel

from .simulation.discipline import Discipline, Synchronised
from .simulation.world import PERIOD, Seen, World, look, two_way, wander

if TYPE_CHECKING:
    from .workload import ClockWork


@dataclass(frozen=True)
class Tree(Synchronised):
    """A servo per clock, along a breadth-first tree from the first node."""

    gain: float = parameter(0.7, "the part of the measured difference by which a clock moves", range=(0.001, 1.0))
    frequency_gain: float = parameter(0.0, "the part of it by which its frequency is corrected, per period", range=(0.0, 1.0))

    def start(self, work: ClockWork) -> Discipline:
        """Clocks that follow their parents."""
        return Servos(work, self.gain, self.frequency_gain, locked=False)


class Servos:
    """One servo per clock, on its parent in the tree."""

    def __init__(self, work: ClockWork, gain: float, frequency_gain: float, *, locked: bool) -> None:
        self.up = work.network.tree()
        self.gain, self.frequency_gain, self.locked = gain, frequency_gain, locked
        self.change, self.pace = np.zeros(work.network.nodes), np.zeros(work.network.nodes)

    def advance(self, world: World, seen: Seen, first: int, steps: int) -> None:
        """Plays the steps."""
        if self.locked:
            # Every node's frequency is the root's, by the cable.
            world.rate[:] = world.rate[0]
        _run(world, seen, first, steps, self.up, self.gain, self.frequency_gain, self.change, self.pace, int(self.locked))


@kernel
def _run(world, seen, first, steps, up, gain, frequency_gain, change, pace, locked):  # type: ignore[no-untyped-def]
    clock, rate, period = world.clock, world.rate, world.numbers[PERIOD]
    for step in range(first, first + steps):
        for v in range(len(clock)):
            change[v] = two_way(world, v, up[v]) if up[v] >= 0 else 0.0
        for v in range(len(clock)):
            pace[v] += frequency_gain * change[v] / period
            clock[v] += gain * change[v] + period * (rate[v] + pace[v])
        wander(world)
        if locked == 1:
            for v in range(1, len(clock)):
                rate[v] = rate[0]
        look(world, seen, step)
