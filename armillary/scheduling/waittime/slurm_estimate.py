"""What `sbatch --test-only` answers: the start beside the running jobs alone, and then the queued work spread over all nodes.

Slurm 22.05 does not plan the queue when it is asked like this. It finds the earliest start beside the running jobs, and adds the
requested node-minutes of the queued jobs, divided by the nodes of the partition and cut to whole minutes. The formula was found by asking
a real Slurm of four nodes, and a test asks it again.

Yoo, Jette and Grondona, SLURM: Simple Linux Utility for Resource Management, JSSPP 2003.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .features.sweep import known_at_submission
from .judging.forecaster import Forecaster, Predicted
from .workload import WaitWork


@dataclass(frozen=True)
class SlurmEstimate(Forecaster):
    """(start beside the running jobs) + ⌊Σ nodes · requested / machine⌋ over the queued jobs, in whole minutes."""

    def predictions(self, work: WaitWork, learned: Any = None) -> Predicted:
        """The estimated waits."""
        known = known_at_submission(work.log, first=work.tune, depth=1)
        return Predicted(work.tune, known.unqueued_s + known.backlog_s)
