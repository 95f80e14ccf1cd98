"""Static: one allocation for the whole run, the smallest that holds the objective, known beforehand.

Each service gets the largest use of any second, as seen with quotas to spare, times the smallest common factor with which at most 1 % of
the windows are violated; the factor is found by bisection in the simulator. It sees the future, so it is an oracle: the best that a
capacity plan could do without ever changing a quota.

Capacity planning by simulation is textbook matter: The Art of Computer Systems Performance Analysis, 1991.
"""

from __future__ import annotations

from dataclasses import dataclass

from .application.application import Application
from .control.allocator import Allocator, Fixed
from .simulation.play import Controller
from .workload import MicroservicesWork


@dataclass(frozen=True)
class Static(Allocator):
    """The smallest fixed allocation that would have done."""

    oracle = True

    def controller(self, app: Application) -> Controller:
        """Without a work there is only the owner's allocation."""
        return Fixed(app.quotas)

    def foresee(self, work: MicroservicesWork) -> Controller:
        """The allocation for this work."""
        from .analysis.safe_allocation import factor_of, peak_use

        peaks = peak_use(work)
        return Fixed(peaks * factor_of(work, peaks))
