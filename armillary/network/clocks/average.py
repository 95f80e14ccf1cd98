"""Averaging: every clock moves a part of the way to the mean of its neighbours.

Differences diffuse away, without a root and without a tree. Each step costs one exchange per link. What diffuses slowly is what spans the
network: frequencies that differ from one half to the other leave a skew that grows with the square of the diameter.

Li and Rus, Global clock synchronization in sensor networks, IEEE Transactions on Computers 55(2), 2006.
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
class Average(Synchronised):
    """Diffusive consensus."""

    gain: float = parameter(0.25, "the part of the way to the neighbours' mean", range=(0.001, 1.0))

    def start(self, work: ClockWork) -> Discipline:
        """Clocks that move to the mean of their neighbours."""
        return _Average(self.gain, work.network.nodes)


class _Average:
    def __init__(self, gain: float, nodes: int) -> None:
        self.gain, self.change = gain, np.zeros(nodes)

    def advance(self, world: World, seen: Seen, first: int, steps: int) -> None:
        """Plays the steps."""
        _run(world, seen, first, steps, self.gain, self.change)


@kernel
def _run(world, seen, first, steps, gain, change):  # type: ignore[no-untyped-def]
    clock, rate, period = world.clock, world.rate, world.numbers[PERIOD]
    for step in range(first, first + steps):
        for v in range(len(clock)):
            total, many = 0.0, world.start[v + 1] - world.start[v]
            for place in range(world.start[v], world.start[v + 1]):
                total += two_way(world, v, place)
            change[v] = gain * total / many
        for v in range(len(clock)):
            clock[v] += change[v] + period * rate[v]
        wander(world)
        look(world, seen, step)
