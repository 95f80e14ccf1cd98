"""verl (HybridFlow) starts everything at once, waits for the last response, then computes rewards, then trains.

Requests stay where they were sent. The responses of a prompt go to one instance, and prompts go to the instances in turn. If KV runs
short, the limit of running requests per instance is the one that is best on the first step. With `async_reward`, each response is handed to
its reward at once, as verl can, and the step then waits for the rewards that are still open.

HybridFlow: A Flexible and Efficient RLHF Framework, EuroSys 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import Technique
from armillary.parameters import parameter

from .rewards.reward import Rewards, after_rollout_s
from .simulation.steps import Launch, Step, conclude, tuned
from .workload import RolloutWork


@dataclass(frozen=True)
class Verl(Technique):
    """Rolls out synchronously, with requests pinned to instances. verl, EuroSys 2025."""

    async_reward: bool = parameter(False, "hands each response to its reward at once, not after the rollout")

    def steps(self, work: RolloutWork) -> list[Step]:
        """Simulates an epoch step by step and returns its steps."""
        setup, p0 = work.setup, work.setup.p0
        instances, out = tuned(work), []
        for first in range(0, work.steps * p0, p0):
            launch = Launch(work, np.arange(first, first + p0), setup.r0)
            generation = launch.start(instances)
            everyone = np.arange(len(launch))
            if self.async_reward:
                rewards = Rewards(work, setup.tp)
                while ended := generation.next():
                    for q in ended:
                        rewards.hand_on(generation, q, int(launch.prompt[q]), int(launch.column[q]))
                last = max(rewards.known_s.values())
            else:
                generation.finish()
                last = generation.over_s + after_rollout_s(work, launch.prompt, launch.column)
            out.append(conclude(launch, generation, everyone, rewards_s=last, tp=setup.tp))
        return out
