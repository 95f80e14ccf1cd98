"""Isolated: each type runs alone on all workers of the domain for two seconds, and the meter's mean power is its own.

What a careful person does without any model: microbenchmarks of each kernel, and an idle run. It takes extra runs, each type must be
able to run alone, and what types do to each other (a cap of the package's power, contention for memory) is not in it.

Microbenchmarking for energy is older than any one paper; Choi, Bedard, Fowler and Vuduc, A roofline model of energy, IPDPS 2013, fit
their model so.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import NotForThisCase, Technique

from .model.fitted import Fitted
from .model.observed import IDLE, Metered


@dataclass(frozen=True)
class Isolated(Technique):
    """Watts per type from runs of one type alone."""

    #: The arena runs the types alone for it, where they can.
    alone = True

    def fit_alone(self, run: Metered, alone: dict[str, float]) -> Fitted:
        """The powers, given the mean watts per worker of each type alone."""
        missing = [name for name in run.observed.columns if name not in alone]
        if missing:
            raise NotForThisCase(f"no run of {missing[0]} alone")
        power = {name: alone[name] for name in (*run.observed.columns, IDLE)}
        return Fitted(power, observed=run.observed, note="Each power was read while only that type ran.")

    def fit(self, run: Metered) -> Fitted:
        """Declines: a trace cannot be run again type by type."""
        raise NotForThisCase("the types of a recorded trace cannot be run alone")
