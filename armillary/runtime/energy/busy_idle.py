"""Busy-idle: all types draw alike, so two powers are enough, that of a busy worker and that of an idle one.

The same intervals, weights and Huber pass as the published model, with the types' columns added up. It is the strongest cheap rival: the
energy of an interval depends mostly on how many workers were busy. It cannot say which type burns the energy, and it is wrong where
another run has another mix of types. Transfers keep a column of their own.

Two-state power models are older than cluster accounting; Fan, Weber and Barroso, Power provisioning for a warehouse-sized computer,
ISCA 2007, show how far utilisation alone goes.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .model.fitted import Fitted
from .model.identifying import merged
from .model.observed import Metered
from .model.solving import solve


@dataclass(frozen=True)
class BusyIdle(Technique):
    """Watts of a busy and of an idle worker."""

    def fit(self, run: Metered) -> Fitted:
        """The powers of one domain."""
        seen = run.observed
        busy = [j for j, one in enumerate(seen.busy) if one]
        moves = [j for j, one in enumerate(seen.busy) if not one and j != seen.idle]
        # A column without any time would have no power.
        parts = [one for one in (busy, moves, [seen.idle]) if one and seen.seconds[:, one].any()]
        found = solve(merged(seen.seconds, parts), seen.energy)
        power = dict.fromkeys(seen.columns, 0.0)
        for number, one in enumerate(parts):
            power |= {seen.columns[j]: float(found.power[number]) for j in one}
        return Fitted(power, condition=found.condition, solution=found, observed=seen, note="All types have one power.")
