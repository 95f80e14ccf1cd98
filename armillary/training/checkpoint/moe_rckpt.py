"""MoE-Rckpt plans a checkpoint for each layer's own span, and profiles again exactly when the expert load has made the plan wrong.

How long a layer computes depends on how tokens fell on experts: it differs between layers and drifts between iterations. A plan made once
for mean spans overflows some spans and wastes others. So spans are profiled layer by layer for one iteration, and the checkpoint is cut
into chunks that fit each of them (`plan_chunks`). The profile is taken again when the stall that the drift of the load has probably caused
reaches the cost of a profile (`SpeculativeActivation`); in between, the spans of experts are rescaled by the load that the router knows
(`SpanModel`). A version is complete when all ranks' chunks have arrived; two are kept beside the one under way, and recovery takes the
newest that is complete on all ranks (`Rckpt`).

Only the abstract was at hand. Our design: the rule of activation, the rescaling between profiles, the ring of neighbours, and that chunks
which found no room take that of later spans.

MoE-Rckpt: Efficient In-Memory Checkpointing for MoE Model Training with Dynamicity Awareness, IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from armillary.arena import Claim, Gain, Kind, Technique
from armillary.parameters import parameter

from .planning.activation import SpeculativeActivation
from .planning.chunks import FloatArray
from .planning.policy import Plan, Policy, Seen, Setting, least_interval, planned
from .planning.span_model import SpanModel
from .simulation.training import Trained, in_memory

if TYPE_CHECKING:
    from .workload import CheckpointWork

_OURS = "models, networks and storage are ours"
_PER = Kind("per-iteration")


class DynamicPlan:
    """Profiles when the load has moved, and plans every iteration for the load of the last one; a small machine without clocks."""

    def __init__(self, setting: Setting, how: MoeRckpt) -> None:
        self.setting, self.how = setting, how
        self.spans = SpanModel(setting.expert, setting.backward)
        self.activation: SpeculativeActivation | None = None
        self._profile_next, self._profiling = True, False
        self._load: FloatArray | None = None
        self._mean: FloatArray = np.zeros(len(setting.expert))
        #: Iterations seen, and the interval of the checkpoint under way with its iterations to go.
        self._seen, self._every, self._to_go = 0, 1, 0
        self._promised_s = 0.0

    def plan(self) -> Plan:
        """The next iteration's chunks for the spans that its load makes likely."""
        chunk, setting = self.how.chunk_mib * 2**20, self.setting
        self._profiling = self._profile_next
        if not self.spans.profiles:
            return Plan(0.0, np.zeros(len(setting.expert)), chunk, profile=True)
        if self.how.profile == "once":
            spans = self._mean
        else:
            spans = self.spans.predicted(self._load if self.how.repartition else None)
        made = planned(setting, spans, setting.state, self.how.gamma, chunk, profile=self._profiling)
        if not setting.every:
            if self._to_go == 0:
                self._every = self._to_go = least_interval(setting, float(made.room.sum()))
            self._to_go -= 1
            size = setting.state / self._every
            made = planned(setting, spans, size, self.how.gamma, chunk, profile=self._profiling, interval=self._every)
        self._promised_s = made.exposed_s
        return made

    @property
    def wish(self) -> bool:
        """Whether this rank wants the next iteration to be profiled."""
        return self._profile_next

    def agree(self, wish: bool) -> None:
        """Takes what the ranks have agreed on, which is the largest wish of all."""
        self._profile_next = wish

    def observe(self, seen: Seen) -> None:
        """Learns the load, and decides whether the next iteration is profiled."""
        self._seen += 1
        self._load = seen.load
        if self.activation is None:
            self.activation = SpeculativeActivation(self.how.kappa * seen.plain_s, 0.5 * seen.plain_s)
        if seen.spans is not None:
            self.spans.profiled(seen.spans, seen.load)
            self._mean = self._mean + (seen.spans - self._mean) / self.spans.profiles
            self.activation.activated(seen.shares)
        extra = max(0.0, seen.stall_s - self._promised_s)
        wanted = self.activation.after(seen.shares, extra)
        if self.how.profile == "once":
            self._profile_next = self._seen < self.setting.warm_up
        else:
            rule = {"speculative": wanted, "always": True, "never": False, "every-20": self._seen % 20 == 0}
            self._profile_next = rule[self.how.activate]


@dataclass(frozen=True)
class MoeRckpt(Technique):
    """Checkpoints in memory, by spans that follow the expert load. MoE-Rckpt, IEEE CLUSTER 2025."""

    gamma: float = parameter(0.95, "the share of a span that is used", range=(0.05, 1.0))
    chunk_mib: float = parameter(32.0, "MiB of a chunk, a quarter of the buffer on the GPU", range=(0.0625, 4096.0))
    replicas: int = parameter(2, "nodes that keep a copy, the own one included", range=(2, 64))
    committed: bool = parameter(False, "whether the chunks of a span are queued before its collective and cannot be held back")
    kappa: float = parameter(0.015, "what a profile costs, as a share of an iteration", range=(0.0, 1.0))
    profile: Literal["layers", "once"] = parameter("layers", "profile whenever asked for, or the mean of the first iterations only")
    activate: Literal["speculative", "always", "never", "every-20"] = parameter("speculative", "when to profile again")
    repartition: bool = parameter(True, "rescale the experts' spans by the load between profiles")

    claims = (
        Claim(
            "iteration_s", over="gemini", by=Gain(ratio=(1.56, None)), on=_PER, aggregate="max", honest=(1.3, 1.8), why=_OURS,
            says="up to 1.56 times as fast as Gemini when every iteration is checkpointed", source="abstract",
        ),
        Claim(
            "iteration_s", over="torchsnapshot", by=Gain(ratio=(5.98, None)), on=_PER, aggregate="max", honest=(4.0, 8.0), why=_OURS,
            says="up to 5.98 times as fast as TorchSnapshot when every iteration is checkpointed", source="abstract",
        ),
        Claim(
            "iteration_s", over=("gemini", "checkfreq", "dcp-async", "moevement"), by=Gain(ratio=(1.0, None)), on=_PER,
            says="no slower than the best of the other systems", source="the abstract's comparison, with all that do the same job",
        ),
        Claim(
            "iteration_s", over=("gemini", "checkfreq", "dcp-async", "moevement", "opportunistic"), by=Gain(ratio=(1.0, None)), on=_PER,
            says="no slower than the best of them and of a sender without a plan", source="the same, with our rival",
        ),
        Claim("partition_error", over="gemini", on=_PER, says="a more accurate partition than Gemini's", source="abstract"),
    )  # fmt: skip

    def policy(self, setting: Setting) -> Policy:
        """The policy for simulations and for real training."""
        return DynamicPlan(setting, self)

    def train(self, work: CheckpointWork) -> Trained:
        """Simulates the run; profiles cost `kappa` of an iteration each."""
        return in_memory(work, self.policy, replicas=self.replicas, committed=self.committed, kappa=self.kappa)
