"""`ray`: Ray as it is, driven as its users do: tasks on warm workers, executables by `subprocess` inside them.

It runs in an interpreter of its own that has the package ray, under a time limit. What it takes to start is `bootstrap`.

Ray: A Distributed Framework for Emerging AI Applications, OSDI 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import parameter

from .running.technique import EXECUTABLES, FUNCTIONS, Launcher

if TYPE_CHECKING:
    from .running.real import Ran, RealWork


@dataclass(frozen=True)
class Ray(Launcher):
    """Ray."""

    python: str = parameter("", "an interpreter that has ray; otherwise this one, or one of ARMILLARY_PEERS")

    starts: ClassVar[frozenset[str]] = frozenset({EXECUTABLES, FUNCTIONS})

    def run(self, work: RealWork) -> Ran:
        """Runs its driver."""
        from .running.peers import run_peer

        return run_peer("ray", work, self.python)
