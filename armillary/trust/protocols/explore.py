"""Explore: no types; every configuration of the roles' machines is looked at, up to a bound on queues.

It needs no conditions, accepts what no condition explains, and shows the trace that goes wrong; but it takes time and memory that grow
with the number of configurations, and it speaks for queues up to its bound only.

On Communicating Finite-State Machines, Journal of the ACM, 1983.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique, parameter

from .checking.judgement import Judgement
from .checking.machine import Machines
from .checking.projection import machines_of
from .exploring.explorer import MOST, explore_machines
from .language.protocol import Protocol


@dataclass(frozen=True)
class Explore(Technique):
    """Accepts what was explored to the end without a counterexample."""

    bound: int = parameter(2, "messages that each queue may hold", range=(1, 64))
    most: int = parameter(MOST, "configurations after which it gives up", range=(1, 10_000_000))
    tags: bool = parameter(False, "messages carry the instance of their mixed choices")
    reduce: bool = parameter(True, "leave out interleavings of steps that nobody can tell apart")

    def judge(self, protocol: Protocol) -> Judgement:
        """Projects without a check, and explores."""
        return self.system(machines_of(protocol, tags=self.tags))

    def system(self, system: Machines) -> Judgement:
        """Explores machines, also hand-written ones."""
        found = explore_machines(system, bound=self.bound, most=self.most, reduce=self.reduce)
        if found.counterexample is not None:
            return Judgement(False, str(found.counterexample), configurations=found.configurations)
        if not found.complete:
            return Judgement(False, f"gave up after {found.configurations:,} configurations", configurations=found.configurations)
        return Judgement(True, system=system, configurations=found.configurations)
