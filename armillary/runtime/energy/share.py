"""Share: the energy of each interval is divided among the types by how long they were busy in it.

What accounting tools do with a process or container: joules follow busy time. An interval in which nothing ran gives the power of idle
workers, and all others charge everything, the base and the idle workers too, to the types that ran; so types that run while others
idle look expensive.

The rule is that of Kepler and of PowerAPI's formulas: Bourdon, Noureddine, Rouvoy, Seinturier, PowerAPI, ERCIM News 92, 2013.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import Technique

from .model.fitted import Fitted
from .model.observed import IDLE, Metered


@dataclass(frozen=True)
class Share(Technique):
    """Watts per type from shares of busy time."""

    def fit(self, run: Metered) -> Fitted:
        """The powers of one domain."""
        seen = run.observed
        ran = seen.seconds[:, : seen.idle]
        busy = ran.sum(axis=1)
        part = ran / np.where(busy > 0, busy, 1.0)[:, None]
        joules, seconds = (part * seen.energy[:, None]).sum(axis=0), ran.sum(axis=0)
        power = {name: float(joules[j] / seconds[j]) if seconds[j] > 0 else 0.0 for j, name in enumerate(seen.columns[:-1])}
        rest = busy == 0
        power[IDLE] = float(seen.energy[rest].sum() / seen.seconds[rest, seen.idle].sum()) if rest.any() else 0.0
        return Fitted(power, observed=seen, note="Energy follows busy time.")
