"""What every technique of the arena is: a pilot in simulated time, a real launcher, or both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import NotForThisCase, Technique

if TYPE_CHECKING:
    from armillary.runtime.pilot.simulation.plan import Plan
    from armillary.runtime.pilot.workload import Work

    from .real import Ran, RealWork

EXECUTABLES, FUNCTIONS = "executables", "functions"


@dataclass(frozen=True)
class Launcher(Technique):
    """One way to start tasks inside an allocation."""

    #: Which kinds of task it starts on this machine; empty where it is only simulated.
    starts: ClassVar[frozenset[str]] = frozenset()
    #: Whether it needs no runtime beside this package's own, or one that is up at once, so that it takes part in a default comparison.
    quick: ClassVar[bool] = False

    def plan(self, work: Work) -> Plan:
        """Its stations for this work."""
        raise NotForThisCase("nobody has published its rates at scale, so it is measured here and not simulated")

    def run(self, work: RealWork) -> Ran:
        """Starts the tasks of a real case."""
        raise NotForThisCase("it is simulated only")

    def declines(self, kinds: frozenset[str]) -> str:
        """Why it does not take a real case of these kinds, or an empty string."""
        if not self.starts:
            return "it is simulated only"
        if "quick" in kinds and not self.quick:
            return "a default comparison leaves out what first starts a runtime of its own; `armillary reproduce` runs it"
        wanted = {kind for kind in (EXECUTABLES, FUNCTIONS) if kind in kinds}
        if wanted - self.starts:
            return f"it starts no {' and no '.join(sorted(wanted - self.starts))}"
        return ""
