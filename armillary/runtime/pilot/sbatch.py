"""`sbatch`: every task is a batch job of its own, and the scheduler of the cluster is the only scheduler.

No allocation is held, so nothing idles, but every task waits for the controller's next look at the queue.

SLURM: Simple Linux Utility for Resource Management, JSSPP 2003.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from .running.technique import EXECUTABLES, Launcher

if TYPE_CHECKING:
    from .running.real import Ran, RealWork


@dataclass(frozen=True)
class Sbatch(Launcher):
    """One batch job per task, submitted side by side by four clients."""

    starts: ClassVar[frozenset[str]] = frozenset({EXECUTABLES})

    def run(self, work: RealWork) -> Ran:
        """Jobs of a Slurm of virtual nodes on this machine."""
        from .running.jobs import run_jobs

        return run_jobs(work, array=False)
