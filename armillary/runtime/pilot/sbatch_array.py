"""`sbatch-array`: all tasks are one array job, so that a single request submits them all; each is still scheduled as a job.

SLURM: Simple Linux Utility for Resource Management, JSSPP 2003.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from .running.technique import EXECUTABLES, Launcher

if TYPE_CHECKING:
    from .running.real import Ran, RealWork


@dataclass(frozen=True)
class SbatchArray(Launcher):
    """One array job."""

    starts: ClassVar[frozenset[str]] = frozenset({EXECUTABLES})

    def run(self, work: RealWork) -> Ran:
        """An array job of a Slurm of virtual nodes on this machine."""
        from .running.jobs import run_jobs

        return run_jobs(work, array=True)
