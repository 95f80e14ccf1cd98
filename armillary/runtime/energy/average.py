"""Average: one power for all, the energy of the run over its length.

The energy of a schedule is then its length times that power, which is what a node-hour price or the thermal design power assumes.

It is the baseline of every accounting by time; Hackenberg and others, Power measurement techniques on standard compute nodes,
ISPASS 2013, show what such a mean hides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from armillary.arena import Technique

from .model.fitted import Fitted, total
from .model.observed import Metered


@dataclass(frozen=True)
class Average(Technique):
    """The mean power of the domain, spread evenly over its workers."""

    def fit(self, run: Metered) -> Fitted:
        """The powers of one domain."""
        seen = run.observed
        each = total(seen.energy) / math.fsum(seen.lengths.tolist()) / seen.workers
        power = {name: each if busy or j == seen.idle else 0.0 for j, (name, busy) in enumerate(zip(seen.columns, seen.busy))}
        return Fitted(power, observed=seen, note="One power for busy and idle workers.")
