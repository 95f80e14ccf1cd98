"""EquilibrIO: admit a data-intensive job only while the I/O that it would collide with stays small.

Contention needs two jobs that both do I/O at the same time and together exceed the file system. Two numbers per job say how likely that
is: its I/O duty ι (the share of its run in I/O) and its bandwidth c. A job waits while its expected collisions with the running jobs
exceed what it tolerates, and computing jobs fill the nodes meanwhile. What a job tolerates grows with its wait, by a fairness level φ, and
after its patience it is served like any other, so no job is passed over for ever.

EquilibrIO: Taming the I/O Tides in High-Performance Computing, IEEE CLUSTER 2025. The algorithm's text is not public: the rule below is
**our design** from the stated principle (balance computation and I/O over time, a fairness level, very little information per job).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from armillary.arena import Claim, Gain, Kind, Parity
from armillary.kernels import loop
from armillary.parameters import parameter
from armillary.scheduling.queueing.reservation import reserve
from armillary.scheduling.queueing.state import FREE, HEAD, KNOWN, STALE, begin, last_in_window

from .easy import WINDOW
from .simulation.policy import EQUILIBRIO, Policy

CONTENDED = (Kind("tidal"), Kind("storm"))


@dataclass(frozen=True)
class EquilibrIO(Policy):
    """Balances computation and I/O over time, with a fairness level φ.

    Expected added contention of job j beside the running set R, at capacity B:
    Δ(j) = ι_j · max(Σ_R ι_i · max(0, c_i + c_j - B), Σ_R ι_i · c_i + c_j - B, 0) / B.
    A job tolerates θ = threshold + relax_per_h · φ/(1 - φ) · hours waited, and anything after patience_s · (1/φ - 1).
    φ = 1 is EASY exactly; φ = 0 never gives in.
    """

    fairness: float = parameter(0.1, "φ: 0 never lets a wait overrule contention, 1 is EASY", range=(0.0, 1.0))
    threshold: float = parameter(0.005, "expected added contention that a new job tolerates (θ₀)", range=(0.0, 1e6))
    relax_per_h: float = parameter(0.1, "how much more it tolerates per hour, at φ = 0.5", range=(0.0, 1e6))
    patience_s: float = parameter(86400.0, "seconds after which it tolerates anything, at φ = 0.5", range=(0.0, 1e9))
    window: int = parameter(500, WINDOW, range=(1, 100_000))
    history: int = parameter(5, "past runs of an executable that are averaged where I/O is learned", range=(1, 100))
    pairs: bool = parameter(True, "whether pairs of jobs that exceed the file system count")
    crowd: bool = parameter(True, "whether many narrow jobs that exceed it together count")

    kernel = EQUILIBRIO
    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "fairness", over="easy", by=Parity(0.1), says="maintains fairness", source="abstract",
        ),
        Claim(
            "turnaround_mean_s", over=("easy", "bandwidth-license", "peak-license"), by=Gain(percent=(0, None)), on=CONTENDED,
            says="jobs are through no later than with EASY or a licence", source="ours",
        ),
        Claim(
            "turnaround_mean_s", over=("sjf-easy", "conservative"), by=Gain(percent=(0, None)), on=CONTENDED,
            says="jobs are through no later than with policies that know nothing about I/O and order the queue better", source="ours",
        ),
    )  # fmt: skip

    def numbers(self) -> tuple[float, ...]:
        """θ₀, what is added per second, the patience in seconds, and which of the two sums count."""
        phi = self.fairness
        per_second = inf if phi == 1.0 else self.relax_per_h / 3600.0 * phi / (1.0 - phi)
        patience = inf if phi == 0.0 else self.patience_s * (1.0 / phi - 1.0)
        return self.threshold, per_second, patience, float(self.pairs), float(self.crowd)


@loop
def equilibrio(s, now, window, numbers):  # type: ignore[no-untyped-def]
    """Starts one job after the other, because each changes what the others would collide with."""
    patience = numbers[2]
    while s.counts[HEAD] >= 0 and s.counts[FREE] > 0:
        last = last_in_window(s, window)
        while 0 <= s.counts[HEAD] <= last and s.counts[FREE] > 0:
            # The oldest job has waited longest, so only it need be asked whether anybody's patience is over.
            head = s.counts[HEAD]
            if now - s.submit[head] < patience:
                while 0 <= head <= last and not _tolerates(s, head, now, numbers):
                    head = s.following[head]
            if not 0 <= head <= last:
                return
            if s.nodes[head] <= s.counts[FREE]:
                _start(s, head, now, numbers)
                continue
            shadow, extra = reserve(s, head, now)
            chosen, j = -1, s.counts[HEAD]
            while 0 <= j <= last and chosen < 0:
                harmless = now + s.requested[j] <= shadow or s.nodes[j] <= extra
                if j != head and s.nodes[j] <= s.counts[FREE] and harmless and _tolerates(s, j, now, numbers):
                    chosen = j
                j = s.following[j]
            if chosen < 0:
                return
            _start(s, chosen, now, numbers)


@loop
def _tolerates(s, j, now, numbers):  # type: ignore[no-untyped-def]
    waited = now - s.submit[j]
    return waited >= numbers[2] or added_contention(s, j, numbers[3], numbers[4]) <= numbers[0] + numbers[1] * waited


@loop
def _start(s, j, now, numbers):  # type: ignore[no-untyped-def]
    s.delta[j] = added_contention(s, j, numbers[3], numbers[4])
    begin(s, j, now)


@loop
def added_contention(s, j, pairs, crowd):  # type: ignore[no-untyped-def]
    """Δ(j), in O(log running): the running jobs are sorted by c, with the sums of ι and ι·c from each place on."""
    capacity, k = s.machine[0], s.counts[KNOWN]
    if s.duty[j] == 0.0 or k == 0 or capacity == np.inf:
        return 0.0
    if s.counts[STALE] == 1:
        s.duty_from[k], s.flow_from[k] = 0.0, 0.0
        for i in range(k - 1, -1, -1):
            other = s.known[i]
            s.duty_from[i] = s.duty_from[i + 1] + s.duty[other]
            s.flow_from[i] = s.flow_from[i + 1] + s.duty[other] * s.bandwidth[other]
        s.counts[STALE] = 0
    spare = capacity - s.bandwidth[j]
    most = 0.0
    if pairs != 0.0:
        low, high = 0, k
        while low < high:
            middle = (low + high) >> 1
            if s.bandwidth[s.known[middle]] <= spare:
                low = middle + 1
            else:
                high = middle
        most = max(most, s.flow_from[low] - spare * s.duty_from[low])
    if crowd != 0.0:
        most = max(most, s.flow_from[0] - spare)
    return s.duty[j] * most / capacity
