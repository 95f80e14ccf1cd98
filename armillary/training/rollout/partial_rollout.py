"""With partial rollouts no response holds up a step; an unfinished response goes on in the next step, with newer weights.

In a step each response makes at most `share` of the maximum length. Unfinished ones are kept and continue in the next step, after their
KV was computed again with the new weights; new prompts take the places of finished ones, so that P0 prompts are always under way. Steps
train on prompts whose responses are all complete. Tokens of trained responses that older weights made are off-policy.

Kimi k1.5: Scaling Reinforcement Learning with LLMs, arXiv 2501.12599 (2025).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from armillary.arena import Technique
from armillary.parameters import parameter

from .rewards.reward import after_rollout_s
from .simulation.generation import Generation
from .simulation.steps import NONE, FloatArray, IntArray, Launch, Step, conclude, tail, tuned
from .workload import RolloutWork


@dataclass(frozen=True)
class PartialRollout(Technique):
    """Gives each response a token budget per step. Kimi k1.5, 2025."""

    share: float = parameter(0.25, "tokens of a response in one step, as a share of the maximum", range=(0.001, 1.0))

    def steps(self, work: RolloutWork) -> list[Step]:
        """Simulates steps until every prompt of the epoch was trained on, and returns them."""
        setup = work.setup
        budget, total = max(1, round(self.share * setup.max_length)), work.steps * setup.p0
        done: dict[int, IntArray] = {}
        instances = tuned(work)
        taken, out = 0, []
        while taken < total or done:
            fresh = min(setup.p0 - len(done), total - taken)
            for p in range(taken, taken + fresh):
                done[p] = np.zeros(setup.r0, np.int64)
            taken += fresh
            launch = Launch(work, list(done), setup.r0)
            before = np.concatenate(list(done.values()))
            target = np.minimum(launch.length, before + budget)
            # Responses that were complete before have nothing to run, but their siblings have.
            runs = np.flatnonzero(target > before)
            generation = Generation(instances, work.prompt[launch.prompt[runs]], target[runs], launch.group[runs], done=before[runs])
            for i, q in enumerate(runs):
                generation.send(i, int(launch.group[q]) % generation.instances.count)
            generation.finish()
            after = target.reshape(-1, setup.r0)
            whole = (after == launch.length.reshape(-1, setup.r0)).all(1)
            kept = np.flatnonzero(np.repeat(whole, setup.r0))
            for p, row, ready in zip(list(done), after, whole, strict=True):
                if ready:
                    del done[p]
                else:
                    done[p] = row
            reward = after_rollout_s(work, launch.prompt[kept], launch.column[kept]) if len(kept) else 0.0
            ended = np.full(len(launch), np.nan)
            ended[runs] = generation.ended_at
            out.append(self._step(launch, generation, kept, ended, reward, float(before[kept].sum())))
        return out

    def _step(self, launch: Launch, generation: Generation, kept: IntArray, ended: FloatArray, reward_s: float, old: float) -> Step:
        step = conclude(launch, generation, NONE, rewards_s=generation.over_s + reward_s, tp=launch.work.setup.tp)
        infer, train, update = launch.work.setup.learning(launch.tokens[kept])
        now = ended[~np.isnan(ended)]
        return replace(
            step, learn_s=float(infer.sum() + train.sum()) + update * (len(kept) > 0), lengths=launch.length[kept],
            prompts=tuple(dict.fromkeys(launch.prompt[kept].tolist())), tail_s=tail(now), offpolicy_tokens=old,
        )  # fmt: skip
