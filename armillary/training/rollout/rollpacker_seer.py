"""RollPacker's rounds run on Seer's rollout, which divides, schedules by context and drafts what the rounds start.

It is our combination of two published systems (RollPacker, arXiv 2509.21009, and Seer, arXiv 2511.14617, both 2025). `TailBatcher` says
what to start and what to give up, `DividedRollout` runs it, and rewards begin as responses end. It has no claims, because nobody
published it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from armillary.arena import Technique
from armillary.parameters import parameter

from .rewards.adaptive_timeout import AdaptiveTimeout
from .rewards.reward import PARTITIONED, Rewards
from .scheduling.tail_batcher import Round, TailBatcher, rounds_of
from .seer import Seer
from .simulation.steps import Launch, Step, conclude
from .workload import RolloutWork


@dataclass(frozen=True)
class RollPackerSeer(Technique):
    """Batches tails over divided rollouts. Our combination of RollPacker and Seer (2025)."""

    eta: float = parameter(1.25, "how much more is started than kept in short rounds", range=(1.0, 4.0))
    chunk: int = parameter(8192, "tokens of a chunk", range=(1, 1 << 24))
    draft: Literal["memory", "best", "none"] = parameter("memory", "as for Seer")

    def steps(self, work: RolloutWork) -> list[Step]:
        """Simulates an epoch round by round and returns its steps."""
        setup = work.setup
        batcher = rounds_of(work.steps * setup.p0, setup.p0, setup.r0, self.eta)
        seer, timeouts = Seer(chunk=self.chunk, draft=self.draft), AdaptiveTimeout()
        seen: dict[Any, int] = {}
        out = []
        while (now := batcher.round()) is not None:
            launch = Launch(work, now.prompts, now.launch, np.array([seen.get(p, 0) for p in now.prompts]))
            for p in now.prompts:
                seen[p] = seen.get(p, 0) + 1
            out.append(self._round(work, seer, launch, batcher, now, timeouts))
        return out

    def _round(
        self, work: RolloutWork, seer: Seer, launch: Launch, batcher: TailBatcher, now: Round, timeouts: AdaptiveTimeout
    ) -> Step:  # fmt: skip
        setup, rollout = work.setup, seer.rollout(launch)
        rewards = Rewards(work, setup.tp, timeouts=timeouts, sharing=PARTITIONED)
        finished = set()

        def over(ended: list[int]) -> bool:
            done = False
            finished.update(ended)
            for q in sorted(ended):
                prompt = int(launch.prompt[q])
                reply = batcher.finished(prompt, int(launch.response[q]))
                rewards.hand_on(rollout.generation, q, prompt, int(launch.column[q]))
                for request in reply.abort:
                    other = launch.number[request]  # type: ignore[index]
                    if other not in finished:
                        rollout.abort(other)
                done = done or reply.round_done
            return done

        rollout.run(over)
        kept = np.array(sorted(launch.number[(p, j)] for p in batcher.trained for j in batcher.kept(p)), np.int64)  # type: ignore[index]
        last = max(rewards.known_s[q] for q in kept.tolist())
        return conclude(launch, rollout.generation, kept, rewards_s=last, tp=setup.tp, kind=now.kind)
