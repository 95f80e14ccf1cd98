"""Seer uses that responses to one prompt resemble each other: one of them tells how long the others will be and what they will say.

Requests are cut into chunks that move between instances through a shared KV pool (`DividedRollout`); one probe per group reveals its length
and the longest groups go first (`ContextScheduler`); what siblings have said serves as drafts (`GroupDraft`), as many as an iteration
verifies while it is still bound by memory. Everything stays synchronous, and output does not change.

The following is our design, because the paper leaves it open. What a chunk added is written to the pool while decoding goes on, and reads
queue at an instance's ports. A sibling helps with drafts at the places that it has already passed. Several paths are drafted if the bound
leaves room for them, and each adds 0.1 token. The mean of accepted tokens stands for single draws. `draft="best"` takes the drafts that
make most tokens per second instead.

Seer: Online Context Learning for Fast Synchronous LLM Reinforcement Learning, arXiv 2511.14617 (2025).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import numpy as np

from armillary.arena import Claim, Gain, Kind, Technique
from armillary.parameters import parameter

from .drafting import acceptance
from .rewards.reward import after_rollout_s
from .scheduling.context_scheduler import ContextScheduler
from .scheduling.divided_rollout import DividedRollout
from .scheduling.kv_pool import KvPool
from .simulation.generation import NO_DRAFTS, FloatArray
from .simulation.setup import Setup, find_model
from .simulation.steps import Launch, Step, conclude
from .workload import RolloutWork

#: The bytes of host memory and SSD of a node, and the bytes/s of an SSD array.
HOST_BYTES, SSD_BYTES, SSD_RATE = 1e12, 8e12, 12e9
_WHY = "another machine, lengths of the published shape and drafts at published means"


@dataclass(frozen=True)
class Seer(Technique):
    """Divides rollouts, schedules by context and drafts in groups. Seer, arXiv 2511.14617."""

    chunk: int = parameter(8192, "tokens of a chunk", range=(1, 1 << 24))
    order: Literal["context", "fifo"] = parameter("context", "probes and longest groups first, or first come first served")
    draft: Literal["memory", "best", "none"] = parameter(
        "memory", "drafts while an iteration is bound by memory, those that make most tokens per second, or none"
    )
    pool_rate: float | None = parameter(None, "bytes/s of a device's port to the KV pool; by default the cluster's", range=(1e-3, 1e13))
    host_bytes: float = parameter(HOST_BYTES, "bytes of a node's memory for the KV pool", range=(0.0, 1e15))
    ssd_bytes: float = parameter(SSD_BYTES, "bytes of a node's SSDs for the KV pool", range=(0.0, 1e18))

    claims = (
        Claim(
            "rollout_tokens_per_s", over="verl", by=Gain(ratio=(1.74, 1.97)), on=Kind("cot"), honest=(1.6, None), why=_WHY,
            says="rollout throughput 74 to 97 % above synchronous RL (veRL)", source="abstract",
        ),
        Claim(
            "rollout_tokens_per_s", over=("verl", "rlhfuse"), by=Gain(ratio=(1.0, None)), on=Kind("cot"),
            says="more tokens per second than the best synchronous rival of the arena (our claim)", source="ours",
        ),
        Claim(
            "tail_s", over="verl", by=Gain(percent=(75, 93)), on=Kind("cot"), honest=(60, None), why=_WHY,
            says="tail latency 75 to 93 % below synchronous RL (veRL)", source="abstract",
        ),
    )  # fmt: skip

    def steps(self, work: RolloutWork) -> list[Step]:
        """Simulates an epoch step by step and returns its steps."""
        setup, out = work.setup, []
        for first in range(0, work.steps * setup.p0, setup.p0):
            launch = Launch(work, np.arange(first, first + setup.p0), setup.r0)
            rollout = self.rollout(launch)
            rollout.run()
            last = rollout.generation.over_s + after_rollout_s(work, launch.prompt, launch.column)
            out.append(conclude(launch, rollout.generation, np.arange(len(launch)), rewards_s=last, tp=setup.tp))
        return out

    def rollout(self, launch: Launch, tp: int | None = None) -> DividedRollout:
        """The rollout of one round, ready to run."""
        setup = launch.work.setup
        accept = self.accept(launch.work)
        return DividedRollout(
            launch, setup.instances(tp), ContextScheduler(setup.max_length, self.order), self.pool(setup), chunk=self.chunk,
            max_length=setup.max_length, accept=accept, best_draft=self.draft == "best",
        )  # fmt: skip

    def pool(self, setup: Setup) -> KvPool:
        """The KV pool of a cluster."""
        from armillary.llm import kv_bytes_per_token

        nodes = max(1, setup.gpus // setup.node)
        rate = (self.pool_rate or setup.joined()[1].far_rate) * setup.tp
        ssd = SSD_RATE if self.pool_rate is None else min(SSD_RATE, rate)
        return KvPool(nodes * self.host_bytes, nodes * self.ssd_bytes, rate, ssd, float(kv_bytes_per_token(find_model(setup.model))))

    def accept(self, work: RolloutWork) -> FloatArray:
        """The tokens kept per iteration with drafts, measured on the streams of the work or published; empty without drafts."""
        if self.draft == "none":
            return NO_DRAFTS
        return _published(work.setup.r0) if work.accept is None else work.accept


@functools.lru_cache(maxsize=8)
def _published(r0: int) -> FloatArray:
    return acceptance.table(acceptance.chances(max(1, r0 - 1)))
