"""Bandwidth as a counted licence inside EASY: data-intensive jobs start only while their mean demands together fit the file system.

A job that spends more than 2 % of its run in I/O takes ι·c licences of the file system's B. The head's reservation covers nodes and
licences, and a job that backfills past the shadow time may use only licences that the head leaves. Slurm counts licences in the same way
(`Licenses=` and, for reservations, `bf_licenses`).

Yoo, Jette and Grondona, SLURM: Simple Linux Utility for Resource Management, JSSPP 2003.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.kernels import loop
from armillary.parameters import parameter
from armillary.scheduling.queueing.state import FREE, HEAD, RUNNING, begin, last_in_window

from .easy import WINDOW
from .simulation.policy import BANDWIDTH_LICENSE, Policy

#: Sums of licences may exceed the capacity by rounding.
ROUNDING = 1 + 1e-12


@dataclass(frozen=True)
class BandwidthLicense(Policy):
    """Admits data-intensive jobs while Σ ι·c fits the file system."""

    window: int = parameter(500, WINDOW, range=(1, 100_000))
    least_duty: float = parameter(0.02, "share of a run in I/O above which a job needs a licence", range=(0.0, 1.0))
    history: int = parameter(5, "past runs of an executable that are averaged where I/O is learned", range=(1, 100))

    kernel = BANDWIDTH_LICENSE

    def numbers(self) -> tuple[float, ...]:
        """The duty above which a licence is needed."""
        return (self.least_duty,)


@loop
def licence(s, j, least_duty, mean):  # type: ignore[no-untyped-def]
    """The licences that a job needs, in bytes per second: ι·c if `mean`, otherwise c; none if it does little I/O."""
    if s.duty[j] <= least_duty:
        return 0.0
    return s.duty[j] * s.bandwidth[j] if mean else s.bandwidth[j]


@loop
def in_use(s, least_duty, mean):  # type: ignore[no-untyped-def]
    """The licences of all running jobs."""
    use = 0.0
    for i in range(s.counts[RUNNING]):
        use += licence(s, s.running[i], least_duty, mean)
    return use


@loop
def bandwidth_license(s, now, window, numbers):  # type: ignore[no-untyped-def]
    """EASY in which a job needs nodes and licences."""
    least, most = numbers[0], s.machine[0] * ROUNDING
    while s.counts[HEAD] >= 0 and s.counts[FREE] > 0:
        last = last_in_window(s, window)
        use = in_use(s, least, True)
        head = s.counts[HEAD]
        while 0 <= head <= last and s.nodes[head] <= s.counts[FREE] and use + licence(s, head, least, True) <= most:
            use += licence(s, head, least, True)
            begin(s, head, now)
            head = s.counts[HEAD]
        if not 0 <= head <= last:
            continue
        shadow, extra, spare = _reserve(s, head, now, use, most, least)
        j = s.following[head]
        while 0 <= j <= last and s.counts[FREE] > 0:
            after, need = s.following[j], licence(s, j, least, True)
            if s.nodes[j] <= s.counts[FREE] and use + need <= most:
                early = now + s.requested[j] <= shadow
                if early or (s.nodes[j] <= extra and need <= spare):
                    use += need
                    if not early:
                        extra -= s.nodes[j]
                        spare -= need
                    begin(s, j, now)
            j = after
        return


@loop
def _reserve(s, head, now, use, most, least):  # type: ignore[no-untyped-def]
    """(shadow time, extra nodes, extra licences): the earliest time at which expected ends free both for `head`, and what is left then."""
    free, left, shadow, need = s.counts[FREE], most - use, now, licence(s, head, least, True)
    enough = free >= s.nodes[head] and need <= left
    for i in range(s.counts[RUNNING]):
        j = s.running[i]
        end = max(s.expected[j], now)
        if enough and end > shadow:
            break
        free += s.nodes[j]
        left += licence(s, j, least, True)
        shadow = end
        enough = free >= s.nodes[head] and need <= left
    return shadow, free - s.nodes[head], left - need
