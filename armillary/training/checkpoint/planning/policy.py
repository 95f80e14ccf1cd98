"""What a technique decides before every iteration, and what it is told afterwards; simulations and real training use the same policies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from .chunks import FloatArray, plan_chunks, sending_s


@dataclass(frozen=True)
class Setting:
    """What does not change during a training run.

    `state` bytes per checkpoint, chunks of `chunk` bytes that cost `alpha` seconds and travel at `beta` bytes per second; `expert` [S]
    is the MoE layer that computes in each span, or −1, and `backward` [S] says in which pass. `every` is 1 where each iteration must be
    checkpointed, and 0 where the policy chooses.
    """

    state: float
    alpha: float
    beta: float
    expert: npt.NDArray[np.int64]
    backward: npt.NDArray[np.bool_]
    every: int = 1
    warm_up: int = 20


@dataclass(frozen=True)
class Plan:
    """One iteration's plan.

    `size`: bytes to send. `room` [S]: the most bytes that may be sent in each span. `spans` [S]: the seconds that each is expected to
    take, or None without a forecast. `profile`: whether spans are timed, which costs seconds. `interval` and `latency` are iterations:
    between two checkpoints, and from a state to its completion. `exposed_s`: seconds that the plan itself leaves after the backward pass.
    """

    size: float
    room: FloatArray
    chunk: float
    spans: FloatArray | None = None
    profile: bool = False
    interval: int = 1
    latency: int = 1
    exposed_s: float = 0.0


@dataclass(frozen=True)
class Seen:
    """What an iteration showed: spans in seconds if they were timed, the seconds of the whole iteration without checkpoint work, the
    seconds that checkpoint traffic added, and what the router knows: shares [M, E], and tokens of the most loaded rank [M].
    """

    spans: FloatArray | None
    plain_s: float
    stall_s: float
    shares: FloatArray
    load: FloatArray


class Policy(Protocol):
    """Plans an iteration, and learns from it."""

    def plan(self) -> Plan:
        """The plan of the next iteration."""
        ...

    def observe(self, seen: Seen) -> None:
        """What the iteration showed."""
        ...


def planned(
    setting: Setting, spans: FloatArray, size: float, gamma: float, chunk: float, *, profile: bool = False, interval: int = 1
) -> Plan:
    """The plan that fills spans in their order, and leaves the rest for after the backward pass."""
    found = plan_chunks(spans, size, setting.alpha, setting.beta, gamma=gamma, chunk=chunk)
    late = sending_s(found.exposed, setting.alpha, setting.beta, chunk)
    return Plan(size, found.room, chunk, spans, profile, interval, interval, late)


def least_interval(setting: Setting, room: float) -> int:
    """Iterations per checkpoint: as few as have room for it, or 1 where every iteration must be checkpointed."""
    if setting.every:
        return setting.every
    return max(1, math.ceil(setting.state / room - 1e-9)) if room > 0 else 1_000_000
