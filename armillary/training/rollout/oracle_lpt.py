"""An oracle: every length is known, and the longest goes first, in chunks, to whichever instance has most room.

Longest processing time first (Graham, Bounds on Multiprocessing Timing Anomalies, 1969) on true lengths, otherwise Seer's divided rollout
without drafts: what it reaches beyond `seer` without drafts is what perfect estimates of lengths would be worth. No claim's baseline.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from armillary.arena import Technique

from .context_scheduler import ContextScheduler
from .divided_rollout import DividedRollout
from .reward import after_rollout_s
from .seer import Seer
from .steps import Launch, Step, conclude
from .workload import RolloutWork


@dataclass(frozen=True)
class OracleLpt(Technique):
    """Longest first, with known lengths. Graham, 1969."""

    chunk: int = field(default=8192, metadata={"doc": "tokens of a chunk", "range": (1, 1 << 24)})

    oracle = True

    def steps(self, work: RolloutWork) -> list[Step]:
        """An epoch, step by step."""
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
