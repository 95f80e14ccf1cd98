"""`dask`: Dask as it is, driven as its users do: functions of a client on worker processes, executables by `subprocess` inside them.

It runs in an interpreter of its own that has the package distributed, under a time limit. What it takes to start is `bootstrap`.

Dask: Parallel Computation with Blocked Algorithms and Task Scheduling, SciPy 2015.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import parameter

from .running.technique import EXECUTABLES, FUNCTIONS, Launcher

if TYPE_CHECKING:
    from .running.real import Ran, RealWork


@dataclass(frozen=True)
class Dask(Launcher):
    """Dask."""

    python: str = parameter("", "an interpreter that has distributed; otherwise this one, or one of ARMILLARY_PEERS")

    starts: ClassVar[frozenset[str]] = frozenset({EXECUTABLES, FUNCTIONS})
    quick: ClassVar[bool] = True

    def run(self, work: RealWork) -> Ran:
        """Runs its driver."""
        from .running.peers import run_peer

        return run_peer("dask", work, self.python)
