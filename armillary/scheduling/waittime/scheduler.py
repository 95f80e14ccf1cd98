"""The scheduler's own forecast: plan every queued job with its requested time, and say when this one would start.

It believes users, who ask for far more time than they need, and it forgets that jobs which arrive later may pass this one. All queued jobs
are planned in queue order, each in the earliest hole of the profile of free nodes, as a backfilling scheduler plans reservations
(`squeue --start` shows them). `slurm-estimate` is what `sbatch --test-only` answers, which is coarser.

Yoo, Jette and Grondona, SLURM: Simple Linux Utility for Resource Management, JSSPP 2003.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from armillary.parameters import parameter

from .features.sweep import known_at_submission
from .judging.forecaster import Forecaster, Predicted
from .workload import WaitWork

#: The parameter that all planning techniques share.
DEPTH = "queued jobs that are planned ahead of a new one"


@dataclass(frozen=True)
class Scheduler(Forecaster):
    """The planned start under requested times."""

    depth: int = parameter(500, DEPTH, range=(1, 100_000))

    def predictions(self, work: WaitWork, learned: Any = None) -> Predicted:
        """The planned waits."""
        return Predicted(work.tune, known_at_submission(work.log, first=work.tune, depth=self.depth).planned_s)
