"""Oracle: knows every gap, and keeps a pod exactly until its next use if that is worth it.

Each arrival is paired with the latest end before it. Keeping a pod over a gap is worth it if `λ·P·∫CI dt/C₀ ≤ (1 − λ)·L/L₀`, where L₀ and
C₀ are static-60's sums on this very work. Pairs are nested or disjoint, so a pod that is kept also serves, no other pairing idles less for
as many reuses, and no timer has a lower cost at the same λ.

Deciding with a known future as a bound goes back to A Study of Replacement Algorithms for a Virtual-Storage Computer, IBM Systems Journal
1966. The pairing is our design.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.arena import Technique
from armillary.scheduling.energy import JOULES_PER_KWH
from armillary.scheduling.faas import Invocations, shadow_gaps

from .simulation.decisions import FIXED, PLANNED
from .simulation.play import Policy, play
from .workload import REFERENCE_S, Counted, KeepAliveWork

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Oracle(Technique):
    """The best decision for every gap."""

    oracle = True
    weighs = True

    def policy(self, work: KeepAliveWork) -> Policy:
        """A plan for this λ."""
        return self.policies(work)(work.lam)

    def policies(self, work: KeepAliveWork) -> Callable[[float], Policy]:
        """Plans for any λ, for all of which static-60 is played and gaps are found once."""
        reference = Counted.of(work, play(work, Policy(FIXED, keep_s=REFERENCE_S), work.lam))
        known = gains(work, work.trace) if isinstance(work.trace, Invocations) else None

        def at(lam: float) -> Policy:
            return Policy(PLANNED, plan=lambda trace: planned(known or gains(work, trace), lam, reference))

        return at


#: For each invocation: until when its pod would wait, the grams that this wait costs, and the cold start that it saves.
Gains = tuple[Floats, Floats, Floats]


def gains(work: KeepAliveWork, trace: Invocations) -> Gains:
    """What keeping each pod until its next use costs and saves; the next use of a pod without one is never."""
    gaps, function = shadow_gaps(trace), trace.function
    end = trace.arrival_s + trace.duration_s
    until = end + np.where(np.isfinite(gaps), gaps, 0.0)
    grams = work.watts(trace)[function] * (work.carbon.integral(until) - work.carbon.integral(end)) / JOULES_PER_KWH
    # The time after until, because end + gap may differ from the arrival in the last digit.
    return np.where(np.isfinite(gaps), np.nextafter(until, np.inf), -np.inf), grams, trace.cold_s[function]


def planned(known: Gains, lam: float, reference: Counted) -> Floats:
    """Until when the pod of each invocation is warm: until its next use where that is worth it, and never otherwise."""
    until, grams, cold = known
    unit_s, unit_g = reference.units
    worth = lam * grams / unit_g <= (1 - lam) * cold / unit_s
    return np.where(worth, until, -np.inf)
