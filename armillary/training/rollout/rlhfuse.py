"""RLHFuse moves the last few responses together, and the devices that this frees begin with the next stage.

As soon as the share of unfinished responses falls under `threshold`, they are moved (their KV is computed again) to the fewest instances
that hold them and on which an iteration takes hardly longer than now. The other instances run reference inference, and, in the
strengthened form that RollPacker compares with, rewards as responses end and training on what is complete.

The threshold is chosen on the first step, with its true lengths, whereas RLHFuse simulates past ones, so this is a generous reading of
the baseline. One of the thresholds tried is 0, with which nothing is moved.

Optimizing RLHF Training for Large Language Models with Stage Fusion, NSDI 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import Technique
from armillary.parameters import parameter

from .rewards.reward import SHARED, Rewards
from .rollpacker import move_together
from .scheduling.stream_trainer import StreamTrainer
from .simulation.generation import Instances
from .simulation.steps import FloatArray, Launch, Step, conclude, tuned
from .workload import RolloutWork

THRESHOLDS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
#: An iteration may take this much longer where requests were moved together.
SLOWER = 1.1


@dataclass(frozen=True)
class RlhFuse(Technique):
    """Fuses stages, strengthened with rewards at once and streamed training. RLHFuse, NSDI 2025."""

    threshold: float | None = parameter(
        None, "share of unfinished responses at which they are moved together; by default the best of seven", range=(0.0, 1.0)
    )  # fmt: skip

    def steps(self, work: RolloutWork) -> list[Step]:
        """Simulates an epoch step by step and returns its steps."""
        instances = tuned(work)
        threshold, first = self.threshold, work.length[: work.setup.p0, : work.setup.r0].ravel().astype(float)
        if threshold is None:
            threshold = min(THRESHOLDS, key=lambda x: self._step(work, instances, 0, x, first).seconds)
        out: list[Step] = []
        for step in range(work.steps):
            known = np.concatenate([s.lengths for s in out]).astype(float) if out else first
            out.append(self._step(work, instances, step, threshold, known))
        return out

    def _step(self, work: RolloutWork, instances: Instances, step: int, threshold: float, history: FloatArray) -> Step:
        setup = work.setup
        launch = Launch(work, np.arange(step * setup.p0, (step + 1) * setup.p0), setup.r0)
        generation = launch.start(instances)
        rewards = Rewards(work, setup.tp, sharing=SHARED)
        expected = StreamTrainer(history=history).expected
        left, freed_s, share = len(launch), np.inf, 0.0
        while ended := generation.next():
            for q in ended:
                rewards.hand_on(generation, q, int(launch.prompt[q]), int(launch.column[q]))
            left -= len(ended)
            if freed_s == np.inf and 0 < left <= threshold * len(launch):
                live = generation.live
                tokens = work.prompt[launch.prompt[live]] + expected(generation.done[live])
                stays = fewest(instances, len(live), float(tokens.sum()), [generation.home(int(q)) for q in live])
                if stays < instances.count:
                    move_together(generation, launch, stays)
                    freed_s, share = generation.now + setup.sync_s(setup.train_tp * setup.train_pp), 1 - stays / instances.count
        known = np.array([rewards.known_s[q] for q in range(len(launch))])
        return conclude(
            launch, generation, np.arange(len(launch)), rewards_s=float(known.max()), tp=setup.tp, known_s=known, freed_s=freed_s,
            freed_share=share,
        )  # fmt: skip


def fewest(instances: Instances, requests: int, tokens: float, homes: list[int]) -> int:
    """The fewest instances that hold `tokens` of KV and whose iterations take hardly longer than those of the fullest instance now."""
    body, head, rate = instances.tables()

    def seconds(batch: int, context: float) -> float:
        return float(body[min(batch, len(body) - 1)] + head[min(batch, len(head) - 1)] + rate[1] * context + rate[2] + rate[3] * batch)

    fullest = max(homes.count(r) for r in set(homes))
    now = seconds(fullest, tokens * fullest / requests)
    for stays in range(max(1, -(-int(tokens) // instances.kv_tokens)), instances.count):
        if seconds(-(-requests // stays), tokens / stays) <= SLOWER * now:
            return stays
    return instances.count
