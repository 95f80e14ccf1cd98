"""Each pod that may wait goes to the window with the most forecast sun that its deadline allows, whatever the other pods do.

The forecast is the median of the same forecaster as GreenK8s's, and windows are chosen again with every new forecast. Bin packing and
sleeping nodes as in pack-and-sleep.

Let's Wait Awhile: How Temporal Workload Shifting Can Reduce Carbon Emissions in the Cloud, Middleware 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique, parameter

from .forecasting.forecaster import Floats, Forecaster
from .simulation.policy import MOST, WINDOW, Policy
from .workload import GreenWork


@dataclass(frozen=True)
class WaitAwhile(Technique):
    """The greenest window of each pod."""

    idle_off: int = parameter(10, "minutes after which a node without pods is switched off", range=(0, 1440))

    def expected_w(self, work: GreenWork, level: float) -> Floats:
        """Forecast watts [cells, cells ahead] at a quantile level."""
        return Forecaster.shipped().watts(work.sun, level)

    def policy(self, work: GreenWork) -> Policy:
        """The rules that the play follows."""
        return Policy(place=MOST, when=WINDOW, sleep=True, idle_off=self.idle_off, discount=0.0, forecast=self.expected_w(work, 0.5))
