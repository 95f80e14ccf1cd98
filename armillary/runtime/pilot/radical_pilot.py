"""`radical-pilot`: RADICAL-Pilot as it is, driven as its users do: task descriptions in bulk to a pilot on `local.localhost`.

It runs in an interpreter of its own that has the package radical.pilot, under a time limit. What it takes to start is `bootstrap`.

Using Pilot Systems to Execute Many Task Workloads on Supercomputers, JSSPP 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import parameter

from .running.technique import EXECUTABLES, Launcher

if TYPE_CHECKING:
    from .running.real import Ran, RealWork


@dataclass(frozen=True)
class RadicalPilot(Launcher):
    """RADICAL-Pilot."""

    python: str = parameter("", "an interpreter that has radical.pilot; otherwise this one, or one of ARMILLARY_PEERS")

    starts: ClassVar[frozenset[str]] = frozenset({EXECUTABLES})

    def run(self, work: RealWork) -> Ran:
        """Runs its driver."""
        from .running.peers import run_peer

        return run_peer("radical-pilot", work, self.python)
