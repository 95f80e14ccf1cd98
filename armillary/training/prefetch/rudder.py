"""Rudder: a controller beside the trainer decides when the buffer of remote features is worth renewing.

MassiveGNN's scores say which entries are stale and which missing vertices are hot. *When* to exchange them depends on the graph, its
partition, the sample and the buffer, so a controller reads a short history of hit rate and communication and of what its own decisions
brought, and answers whenever it is ready; training never waits for it. In the paper the controller is a small language model that is
prompted in context. Here it is **a stand-in that follows the published instructions and is no language model**, with a language model's
latency, unless an endpoint is named.

Rudder: Steering Prefetching in Distributed GNN Training using LLM Agents, arXiv 2602.23556 (ICS 2026).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from armillary.arena import Claim, Gain, Kind, Technique
from armillary.errors import InputError
from armillary.parameters import parameter

from .control.chat import ChatPolicy
from .control.fixed import Always, Never
from .control.loop import ControlLoop, Policy
from .control.stand_in import IclStandIn
from .simulation.caches import STARTS, SteeredCache, first_content, scored, static_facts
from .workload import PrefetchWork

POLICIES = ("stand-in", "chat", "always", "never")


@dataclass(frozen=True)
class Rudder(Technique):
    """Renews the buffer when a controller says so."""

    policy: str = parameter("stand-in", "who decides: the stand-in, a language model at `url`, or a fixed answer", choices=POLICIES)
    period: int = parameter(25, "minibatches that may not hit an entry before it is stale (Δ)", range=(1, 100_000))
    alpha: float = parameter(0.05, "share by which a score falls per minibatch", range=(1e-6, 0.999))
    window: int = parameter(25, "minibatches that are averaged before the controller is asked", range=(1, 100_000))
    kept: int = parameter(5, "past decisions that the controller sees; 0 leaves it without a history", range=(0, 1000))
    effects: bool = parameter(True, "whether a past decision comes with its effect")
    latency_s: float = parameter(1.5, "median seconds until the controller answers, as of a small local model", range=(0, 1e6))
    latency_sigma: float = parameter(0.5, "spread of the logarithm of those seconds", range=(0, 3))
    start: str = parameter("degree", "what a buffer starts with", choices=STARTS)
    url: str = parameter("", "address of an OpenAI-compatible endpoint, for the policy chat")
    model: str = parameter("", "name of the endpoint's model, for the policy chat")

    claims = (
        Claim(
            "epoch_s", over="none", by=Gain(ratio=(1.91, None)), aggregate="max", honest=(1.6, 2.3), stand_in="controller",
            why="read as a ratio of speeds; as time saved, 91 % would be 11 times", says="up to 91 % faster than without prefetching",
            source="abstract",
        ),
        Claim(
            "epoch_s", over="static-degree", by=Gain(ratio=(1.82, None)), aggregate="max", honest=(1.4, 2.2), stand_in="controller",
            why="read as a ratio of speeds; as time saved, 82 % would be 5.6 times", says="up to 82 % faster than static prefetching",
            source="abstract",
        ),
        Claim(
            "comm_nodes", over="none", by=Gain(percent=(50, None)), stand_in="controller", says="communication falls by more than 50 %",
            source="abstract",
        ),
        Claim(
            "epoch_s", over=("lru", "periodic", "classifier"), by=Gain(ratio=(1.0, None)), on=Kind("drift"), stand_in="controller",
            says="faster than heuristics and classifiers where the hot set moves", source="abstract",
        ),
    )  # fmt: skip

    def validate(self) -> None:
        """A language model needs an address."""
        if self.policy == "chat" and not (self.url and self.model):
            raise InputError("the policy chat needs the address and the model of an endpoint: set url and model", where="rudder.url")

    def controller(self) -> Policy:
        """The policy that decides."""
        if self.policy == "chat":
            return ChatPolicy(self.url, self.model)
        if self.policy == "stand-in":
            return IclStandIn()
        return Always() if self.policy == "always" else Never()

    def caches(self, work: PrefetchWork) -> list[SteeredCache]:
        """One cache and one controller per trainer; the trainers' latencies are drawn from streams of their own."""
        made = []
        for trainer, rng in zip(work.trainers, self.rng.spawn(len(work.trainers)), strict=True):
            content = first_content(work, trainer, self.start, rng)
            buffer = scored(work, trainer, content, alpha=self.alpha, period=self.period)
            loop = ControlLoop(static_facts(work, trainer, period=self.period, window=self.window), kept=self.kept, effects=self.effects)
            made.append(SteeredCache(trainer, buffer, loop, self.controller(), Latency(self.latency_s, self.latency_sigma, rng)))
        return made


@dataclass(frozen=True)
class Latency:
    """Draws the seconds of the next answer: lognormal, by median and spread."""

    median_s: float
    sigma: float
    rng: np.random.Generator

    def __call__(self) -> float:
        return self.median_s * math.exp(self.sigma * float(self.rng.standard_normal()))
