"""Flooding the largest clock: whoever hears of a later time takes it and passes it on at once.

A receiver adds the least that the delay may be, so that no clock is ever set ahead of the fastest one, and no algorithm has a smaller
global skew for what it knows. But when the delays of a part of the network turn from their most to their least, later time runs through
that part at once, and at its edge two neighbours differ by all that the delays had hidden before.

Srikanth and Toueg, Optimal clock synchronization, Journal of the ACM 34(3), 1987.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.arena import parameter
from armillary.kernels import kernel, part

from .simulation.discipline import Discipline, Synchronised
from .simulation.world import GRAIN, PERIOD, Seen, World, draw, look, wander

if TYPE_CHECKING:
    from .workload import ClockWork


@dataclass(frozen=True)
class MaxFlood(Synchronised):
    """The largest clock heard of, relayed at once."""

    relays: int = parameter(0, "hops that news travels within one measuring period; 0: as many as the delays allow", range=(0, 100_000))

    def start(self, work: ClockWork) -> Discipline:
        """Clocks that take the largest time they hear of."""
        hops = self.relays or max(1, int(work.period / max(1e-12, float(work.network.delay.mean()))))
        return _Flood(min(hops, work.network.nodes), work.network.nodes, may_be_none=work.uncertainty == 1.0)


class _Flood:
    def __init__(self, hops: int, nodes: int, *, may_be_none: bool) -> None:
        self.hops, self.heard, self.may_be_none = hops, np.zeros(nodes), may_be_none

    def advance(self, world: World, seen: Seen, first: int, steps: int) -> None:
        """Plays the steps."""
        # Stamps arrive at once where the delay may be nothing and is.
        at_once = world.late <= 1e-12 if self.may_be_none else np.zeros(len(world.late), np.bool_)
        _run(world, seen, first, steps, self.hops, self.heard, at_once)


@part
def _rush(world, at_once):  # type: ignore[no-untyped-def]
    """Lets time travel as far as it can along links that take none."""
    clock, moved = world.clock, True
    while moved:
        moved = False
        for v in range(len(clock)):
            for place in range(world.start[v], world.start[v + 1]):
                told = clock[world.other[place]]
                if at_once[world.link[place]] and told > clock[v]:
                    clock[v] = told
                    moved = True


@kernel
def _run(world, seen, first, steps, hops, heard, at_once):  # type: ignore[no-untyped-def]
    clock, rate, period, grain = world.clock, world.rate, world.numbers[PERIOD], world.numbers[GRAIN]
    for step in range(first, first + steps):
        _rush(world, at_once)
        look(world, seen, step)
        for _ in range(hops):
            later = False
            for v in range(len(clock)):
                most = clock[v]
                for place in range(world.start[v], world.start[v + 1]):
                    link = world.link[place]
                    passage = np.float64(np.int64(draw(world.draws) >> np.uint64(48))) * 1.52587890625e-05
                    most = max(most, clock[world.other[place]] - world.late[link] - world.jitter[link] * passage)
                # Less than the granularity of stamps is no news.
                heard[v] = most if most > clock[v] + grain else clock[v]
                later |= heard[v] > clock[v]
            if not later:
                break
            for v in range(len(clock)):
                clock[v] = heard[v]
            _rush(world, at_once)
            # The front of a wave is between two hops, not between two periods.
            look(world, seen, step)
        for v in range(len(clock)):
            clock[v] += period * rate[v]
        wander(world)
        look(world, seen, step)
