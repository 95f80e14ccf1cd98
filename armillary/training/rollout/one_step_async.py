"""Some devices roll out the next step while the others train on the last one, so training is one step off-policy.

The devices are split, and a step takes as long as the slower side. All responses come from weights one step old. The split is the best of
three on the first step, within whole instances and whole training copies.

Asynchronous RLHF: Faster and More Efficient Off-Policy RL for Language Models, ICLR 2025.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from armillary.arena import NotForThisCase, Technique
from armillary.parameters import parameter

from .rewards.reward import Rewards
from .simulation.generation import Instances
from .simulation.steps import Launch, Step, conclude, tuned
from .workload import RolloutWork

SHARES = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class OneStepAsync(Technique):
    """Runs rollout and training side by side, one step apart. Asynchronous RLHF, 2025."""

    share: float | None = parameter(
        None, "share of the devices that roll out; without it, the best of three on the first step", range=(0.01, 0.99)
    )

    def steps(self, work: RolloutWork) -> list[Step]:
        """Simulates an epoch in which each step rolls out while the step before is trained on."""
        shares = [x for x in (SHARES if self.share is None else (self.share,)) if self._split(work, x) is not None]
        if not shares:
            raise NotForThisCase("no split leaves whole instances and whole training copies on both sides")
        with_seqs = {x: tuned(work, self._split(work, x)) for x in shares}
        share = min(shares, key=lambda x: self._slower(self._rollout(work, with_seqs[x], 0, x))) if len(shares) > 1 else shares[0]
        out: list[Step] = []
        for step in range(work.steps):
            now = self._rollout(work, with_seqs[share], step, share)
            # While this step rolls out, the devices for training learn on the one before.
            beside = out[-1].learn_s if out else 0.0
            old = float(now.lengths.sum()) if out else 0.0
            out.append(replace(now, hidden_s=min(now.rollout_s + now.reward_s, beside), offpolicy_tokens=old))
        return out

    @staticmethod
    def _slower(step: Step) -> float:
        return max(step.rollout_s + step.reward_s, step.learn_s)

    @staticmethod
    def _split(work: RolloutWork, share: float) -> int | None:
        setup = work.setup
        each = int(np.lcm(setup.tp, setup.train_tp * setup.train_pp))
        gpus = round(share * setup.gpus / each) * each
        return gpus if 0 < gpus < setup.gpus else None

    def _rollout(self, work: RolloutWork, instances: Instances, step: int, share: float) -> Step:
        setup, gpus = work.setup, self._split(work, share)
        assert gpus is not None
        launch = Launch(work, np.arange(step * setup.p0, (step + 1) * setup.p0), setup.r0)
        generation = launch.start(instances)
        rewards = Rewards(work, setup.tp)
        while ended := generation.next():
            for q in ended:
                rewards.hand_on(generation, q, int(launch.prompt[q]), int(launch.column[q]))
        done = conclude(launch, generation, np.arange(len(launch)), rewards_s=max(rewards.known_s.values()), tp=setup.tp)
        infer, train, update = setup.learning(launch.tokens, setup.gpus - gpus)
        return replace(done, learn_s=float(infer.sum() + train.sum()) + update)
