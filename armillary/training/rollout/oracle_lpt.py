"""The oracle knows every length and sends the longest request first, in chunks, to the instance with the most room.

It is longest processing time first (Graham, Bounds on Multiprocessing Timing Anomalies, 1969) on true lengths, and otherwise Seer's divided
rollout without drafts. Its gain over `seer` without drafts is what perfect estimates of lengths would be worth. It is no claim's baseline.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from armillary.arena import Technique
from armillary.parameters import parameter

from .rewards.reward import after_rollout_s
from .scheduling.context_scheduler import ContextScheduler
from .scheduling.divided_rollout import DividedRollout
from .seer import Seer
from .simulation.steps import Launch, Step, conclude
from .workload import RolloutWork


@dataclass(frozen=True)
class OracleLpt(Technique):
    """Serves the longest request first, with known lengths. Graham, 1969."""

    chunk: int = parameter(8192, "tokens of a chunk", range=(1, 1 << 24))

    oracle = True

    def steps(self, work: RolloutWork) -> list[Step]:
        """Simulates an epoch step by step and returns its steps."""
        setup, out = work.setup, []
        for first in range(0, work.steps * setup.p0, setup.p0):
            launch = Launch(work, np.arange(first, first + setup.p0), setup.r0)
            known: dict[Hashable, int] = dict(enumerate(launch.length.tolist()))
            rollout = DividedRollout(
                launch, setup.instances(), ContextScheduler(setup.max_length, "known", known), Seer().pool(setup), chunk=self.chunk,
                max_length=setup.max_length,
            )  # fmt: skip
            rollout.run()
            last = rollout.generation.over_s + after_rollout_s(work, launch.prompt, launch.column)
            out.append(conclude(launch, rollout.generation, np.arange(len(launch)), rewards_s=last, tp=setup.tp))
        return out
