"""Counters: energy is linear in the flops and the bytes of an interval, and in worker-time.

E_k = a · flops + b · bytes + c · worker-seconds, by the same solver as the published model. Each type's power follows from its flops and
bytes per second. Three coefficients, known before any type is: it transfers to types that never ran, and is as right as flops and bytes say
what a kernel draws.

After Bellosa, The benefits of event-driven energy accounting in power-sensitive systems, ACM SIGOPS European Workshop 2000. Here the
counts are those that the trace states per task, not those of hardware counters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import NotForThisCase, Technique

from .model.fitted import Fitted
from .model.observed import Metered
from .model.solving import solve


@dataclass(frozen=True)
class Counters(Technique):
    """Watts per type from its flops and bytes per second."""

    def fit(self, run: Metered) -> Fitted:
        """The powers of one domain."""
        seen = run.observed
        if seen.rates is None:
            raise NotForThisCase("the trace does not say the flops and bytes of its tasks")
        of_worker = np.array([*seen.busy[:-1], True], float)
        # Giga-units keep the columns near each other; scaling to unit norm does the rest.
        features = [seen.seconds @ (rate * 1e-9) for rate in seen.rates] + [seen.seconds @ of_worker]
        used = [i for i, one in enumerate(features) if one.any()]
        found = solve(np.column_stack([features[i] for i in used]), seen.energy)
        each = np.zeros(3)
        each[used] = found.power
        flops, nbytes = (rate * 1e-9 for rate in seen.rates)
        power = {
            name: float(each[0] * flops[j] + each[1] * nbytes[j] + each[2] * of_worker[j]) for j, name in enumerate(seen.columns)
        }  # fmt: skip
        return Fitted(power, condition=found.condition, solution=found, observed=seen, note="Power follows flops, bytes and time.")
