"""The best that the replacement rule of MassiveGNN and Rudder can do, by looking ahead: an upper bound for every controller.

For each trainer it tries never to replace, to replace every so many minibatches, and to replace whenever that saves more vertices over the
next minibatches than it fetches, for several lengths of that look; and it takes the schedule with the least communication over the whole
run. Its decisions take no time. It is not the optimum over all schedules, whose number doubles with every minibatch, but near it (the
tests compare with all schedules of short runs). Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems
Journal 1966, looks ahead in the same way for single pages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from armillary.arena import Technique
from armillary.parameters import parameter

from .analysis.look_ahead import saving
from .buffers.scored import ScoredBuffer
from .control.fixed import Every
from .simulation.caches import TimedCache, first_content, merged, scored
from .workload import PrefetchWork, Trainer

Wanted = Callable[[int, Callable[[], int]], bool]


@dataclass(frozen=True)
class Oracle(Technique):
    """Replaces when that will pay off (looking ahead as in IBM Systems Journal 1966)."""

    looks: tuple[int, ...] = parameter((25, 100), "minibatches that are looked ahead")
    step: int = parameter(5, "minibatches between two looks", range=(1, 100_000))
    periods: tuple[int, ...] = parameter((25,), "minibatches between replacements, of the regular schedules")
    period: int = parameter(25, "minibatches that may not hit an entry before it is stale (Δ)", range=(1, 100_000))
    alpha: float = parameter(0.05, "share by which a score falls per minibatch", range=(1e-6, 0.999))

    oracle = True

    def caches(self, work: PrefetchWork) -> list[TimedCache]:
        """One cache per trainer, which replaces by the best schedule that was found."""
        made = []
        for trainer in work.trainers:
            best = self.schedule(work, trainer)
            made.append(TimedCache(self._buffer(work, trainer), best.__contains__))
        return made

    def schedule(self, work: PrefetchWork, trainer: Trainer) -> frozenset[int]:
        """The minibatches at which a trainer replaces."""
        buffer = self._buffer(work, trainer)
        tried = [played(trainer, buffer.copy(), lambda t, ahead: False)]
        tried += [played(trainer, buffer.copy(), _regular(period)) for period in self.periods]
        tried += [played(trainer, buffer.copy(), lambda t, ahead: (t + 1) % self.step == 0 and ahead() > 0, look) for look in self.looks]
        return min(tried, key=lambda found: found[0])[1]

    def _buffer(self, work: PrefetchWork, trainer: Trainer) -> ScoredBuffer:
        return scored(work, trainer, first_content(work, trainer), alpha=self.alpha, period=self.period)


def _regular(period: int) -> Wanted:
    due = Every(period).due
    return lambda t, ahead: due(t)


def played(trainer: Trainer, buffer: ScoredBuffer, wanted: Wanted, look: int = 25) -> tuple[int, frozenset[int]]:
    """(vertices fetched, minibatches with a replacement) of one schedule.

    `wanted(t, ahead)` decides at minibatch t, and `ahead()` says how many vertices a replacement there would save over the next `look`.
    """
    comm, at = 0, []
    for t in range(trainer.minibatches):
        found = buffer.look_up(trainer.asks(t))
        exchange = None
        if wanted(t, lambda: saving(trainer, buffer.candidates(), buffer, found, t, look)):  # noqa: B023
            exchange = buffer.replace()
            at.append(t)
        comm += len(merged(found, exchange, len(trainer.halo)))
    return comm, frozenset(at)
