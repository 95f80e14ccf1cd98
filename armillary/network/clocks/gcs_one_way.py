"""Gradient clock synchronisation with stamps in one direction: the error of an estimate is half of what is unknown of the delay.

The triggers are those of `gcs-two-way`; only what a clock knows of its neighbours differs. It hears a neighbour's stamp, knows that the
delay was between a least and a most, and takes the middle.

Lenzen, Locher and Wattenhofer, Tight bounds for clock synchronization, Journal of the ACM 57(2), 2010.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.arena import parameter

from .bounds.budget import Bounds, Budget, bounds, checked_kappa, error_budget
from .gcs_two_way import Gradient
from .simulation.discipline import Discipline, Synchronised

if TYPE_CHECKING:
    from .graph.network import Floats
    from .workload import ClockWork


@dataclass(frozen=True)
class GcsOneWay(Synchronised):
    """Gradient clock synchronisation over stamps in one direction."""

    mu: float = parameter(1e-4, "by which share a clock speeds up; must exceed the band of the oscillators", range=(1e-9, 0.1))
    c: float = parameter(2.5, "κ over the error bound of a link; more than 2", range=(2.0, 100.0))

    def budget(self, work: ClockWork) -> Budget:
        """δ_e by its parts."""
        return error_budget(
            work.network, rho=work.rho, mu=self.mu, period=work.period, grain=work.grain, one_way=work.uncertainty, declared=work.declared
        )

    def limits(self, work: ClockWork) -> tuple[Floats, Floats]:
        """(δ_e, κ_e) as the triggers take them."""
        delta = self.budget(work).total
        return delta, checked_kappa(delta, self.c)

    def bounds(self, work: ClockWork) -> Bounds:
        """The bounds on global and local skew."""
        return bounds(work.network, self.limits(work)[1], work.rho, self.mu)

    def start(self, work: ClockWork) -> Discipline:
        """Clocks with one-way estimates."""
        self.bounds(work)
        return Gradient(*self.limits(work), self.mu, work.network.nodes, both_ways=False)
