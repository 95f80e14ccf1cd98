"""`parsl`: Parsl as it is, driven as its users do: apps on a HighThroughputExecutor, executables by `subprocess` inside warm workers.

It runs in an interpreter of its own that has the package parsl, under a time limit. What it takes to start is `bootstrap`.

Parsl: Pervasive Parallel Programming in Python, HPDC 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import parameter

from .running.technique import EXECUTABLES, FUNCTIONS, Launcher

if TYPE_CHECKING:
    from .running.real import Ran, RealWork


@dataclass(frozen=True)
class Parsl(Launcher):
    """Parsl."""

    python: str = parameter("", "an interpreter that has parsl; otherwise this one, or one of ARMILLARY_PEERS")

    starts: ClassVar[frozenset[str]] = frozenset({EXECUTABLES, FUNCTIONS})

    def run(self, work: RealWork) -> Ran:
        """Runs its driver."""
        from .running.peers import run_peer

        return run_peer("parsl", work, self.python)
