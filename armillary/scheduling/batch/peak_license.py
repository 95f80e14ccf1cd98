"""The whole bandwidth as a licence: data-intensive jobs start only while their peaks together fit the file system, or alone.

A job that spends more than 2 % of its run in I/O takes c licences of the file system's B, so that the licensed jobs can never exceed it
together. A job that has its nodes and lacks only the licence holds no reservation and may be passed, as with
Slurm's licences before they were part of its reservations (Yoo, Jette and Grondona, SLURM: Simple Linux Utility for Resource Management,
JSSPP 2003).
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.kernels import loop
from armillary.parameters import parameter
from armillary.scheduling.queueing.reservation import reserve
from armillary.scheduling.queueing.state import FREE, HEAD, begin, last_in_window

from .bandwidth_license import ROUNDING, in_use, licence
from .easy import WINDOW
from .simulation.policy import PEAK_LICENSE, Policy


@dataclass(frozen=True)
class PeakLicense(Policy):
    """Admits data-intensive jobs while Σ c fits the file system."""

    window: int = parameter(500, WINDOW, range=(1, 100_000))
    least_duty: float = parameter(0.02, "share of a run in I/O above which a job needs a licence", range=(0.0, 1.0))
    history: int = parameter(5, "past runs of an executable that are averaged where I/O is learned", range=(1, 100))

    kernel = PEAK_LICENSE

    def numbers(self) -> tuple[float, ...]:
        """The duty above which a licence is needed."""
        return (self.least_duty,)


@loop
def peak_license(s, now, window, numbers):  # type: ignore[no-untyped-def]
    """One pass in queue order: licences only become fewer meanwhile, so a job that was passed cannot start later in the pass."""
    while s.counts[HEAD] >= 0 and s.counts[FREE] > 0:
        last = last_in_window(s, window)
        use = in_use(s, numbers[0], False)
        shadow, extra, reserved, left = now, 0, False, 0
        j = s.counts[HEAD]
        while 0 <= j <= last:
            after, need = s.following[j], licence(s, j, numbers[0], False)
            fits = s.nodes[j] <= s.counts[FREE]
            licensed = need == 0.0 or use == 0.0 or use + need <= s.machine[0] * ROUNDING
            early = reserved and now + s.requested[j] <= shadow
            if fits and licensed and (not reserved or early or s.nodes[j] <= extra):
                use += need
                if reserved and not early:
                    extra -= s.nodes[j]
                begin(s, j, now)
            else:
                left += 1
                if not fits and not reserved:
                    shadow, extra = reserve(s, j, now)
                    reserved = True
            j = after
        if left > 0:
            return
