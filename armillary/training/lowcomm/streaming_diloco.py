"""Streaming DiLoCo: synchronise one fragment of the parameters at a time, while training goes on.

The layers form F fragments, each of which has rounds of H steps like DiLoCo's, shifted by H/F steps, so that the link carries a fraction
of the parameters at a time. The exchange may take τ inner steps, during which workers go on; what arrives is then mixed with
the weights that the worker has reached, θᵢ ← α·θᵢ + (1 − α)·θ. Differences may travel in four bits.

Our design where it is left open: fragment f has its first round after (f + 1)·H/F steps, and after the last step every fragment that has
trained since its last round is exchanged once more, without mixing, so that a model can be evaluated.

Streaming DiLoCo with overlapping communication: Towards a Distributed Free Lunch, arXiv 2501.18512, 2025.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from armillary.arena import parameter
from armillary.errors import InputError

from .diloco import DiLoCo, Stateful, check_weights, counted, outer_step
from .exchange.mean import SYNCHRONISE, Bits, mean_over
from .workers.scheme import ONE_STAGE, LocalSteps, Scheme, Synchronised

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from armillary.comm import Communicator

    from .workers.inner import Inner


class StreamingDiLoCo(DiLoCo):
    """DiLoCo in fragments: call `step()` after each `inner.step()`, and `finish()` after the last one.

    `delay` is τ, the inner steps that an exchange takes, and `mix` is α, the share of a worker's own weights that stays. With one
    fragment, no delay and α = 0 it is DiLoCo.
    """

    def __init__(
        self, model: torch.nn.Module, inner: Stateful | None = None, every: int = 30, group: Any = None, *, fragments: int = 4,
        delay: int = 1, mix: float = 0.5, lr: float = 0.7, momentum: float = 0.9, bits: Bits = 32,
    ) -> None:  # fmt: skip
        super().__init__(model, inner, "nesterov", every, group, lr=lr, momentum=momentum, bits=bits)
        if fragments < 1 or not 0 <= delay < every or not 0 <= mix <= 1:
            found = f"{fragments} fragments, a delay of {delay} and a mix of {mix:g}"
            raise InputError(f"found {found}; expected a fragment, a delay below {every} and a mix from 0 to 1", where="StreamingDiLoCo")
        self.mix, self.delay = mix, delay
        starts = list(itertools.accumulate((p.numel() for p in self.parameters), initial=0))
        #: The slices of θ that each fragment holds.
        self.slices = [
            [slice(starts[i], starts[i + 1]) for i in part] for part in fragments_of(self.names, min(fragments, every))
        ]  # fmt: skip
        count = len(self.slices)
        #: The inner step at which each fragment's next exchange begins, and that of its last one.
        self.due = [max(1, (f + 1) * every // count) for f in range(count)]
        self.last = [0] * count
        #: What arrives: fragment to (the step at which it is applied, the workers' mean).
        self.arriving: dict[int, tuple[int, Tensor]] = {}

    def step(self, loss: Tensor | float | None = None) -> bool:
        """Count an inner step, begin the exchanges that are due, and apply those that have arrived."""
        self._count(loss)
        talked = False
        for fragment, due in enumerate(self.due):
            if due == self.steps:
                self._send(fragment)
                self.due[fragment] += self.every
                talked = True
        for fragment in [f for f, (when, _) in self.arriving.items() if when <= self.steps]:
            self._apply(fragment, self.mix)
        return talked

    def finish(self) -> None:
        """Apply what is under way, exchange every fragment that has trained since, and put θ into the model."""
        for fragment in range(len(self.slices)):
            if fragment in self.arriving:
                self._apply(fragment, self.mix)
            if self.last[fragment] < self.steps:
                self._send(fragment)
                self._apply(fragment, 0.0)
        self.take(self.theta)
        self.inside = 0

    def _part(self, flat: Tensor, fragment: int) -> Tensor:
        import torch

        return torch.cat([flat[piece] for piece in self.slices[fragment]])

    def _send(self, fragment: int) -> None:
        """Exchange the difference of a fragment; the mean arrives after the delay."""
        mine, theta = self._part(self.local(), fragment), self._part(self.theta, fragment)
        if self.on_delta is not None:
            self.on_delta(theta - mine)
        with counted(self.ranks, SYNCHRONISE):
            mean = mean_over(self.ranks, mine) if self.bits == 32 else theta - mean_over(self.ranks, theta - mine, self.bits)
        check_weights(mean, mine, self.ranks, self.steps)
        self.arriving[fragment] = (self.steps + self.delay, mean)
        self.last[fragment] = self.steps
        self.round += 1

    def _apply(self, fragment: int, mix: float) -> None:
        """The outer step of a fragment, and the mixture of its result with this worker's weights."""
        _, mean = self.arriving.pop(fragment)
        theta, velocity, local = self._part(self.theta, fragment), self._part(self.velocity, fragment), self.local()
        if (self.lr, self.momentum) == (1.0, 0.0):
            theta.copy_(mean)
        else:
            outer_step(theta, theta - mean, velocity, self.lr, self.momentum)
        at = 0
        for piece in self.slices[fragment]:
            size = piece.stop - piece.start
            self.theta[piece] = theta[at : at + size]
            self.velocity[piece] = velocity[at : at + size]
            local[piece] = mix * local[piece] + (1 - mix) * theta[at : at + size] if mix else theta[at : at + size]
            at += size
        self.take(local)

    def state_dict(self) -> dict[str, Any]:
        """The state of DiLoCo, the plan of the fragments, and what is under way."""
        arriving = {str(f): {"when": when, "mean": mean.clone()} for f, (when, mean) in self.arriving.items()}
        return {**super().state_dict(), "due": list(self.due), "last": list(self.last), "arriving": arriving}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        super().load_state_dict(state)
        self.due, self.last = [int(x) for x in state["due"]], [int(x) for x in state["last"]]
        self.arriving = {int(f): (int(one["when"]), one["mean"].clone()) for f, one in state["arriving"].items()}


def fragments_of(names: list[str], count: int) -> list[list[int]]:
    """The numbers of the parameters in each of at most `count` fragments: layers, and parameters outside them, are dealt out in turn.

    A layer holds neighbours whose names agree up to their first number.
    """
    layers = [[i for i, _ in group] for _, group in itertools.groupby(enumerate(names), lambda item: _layer(item[1]))]
    count = min(count, len(layers))
    return [[i for layer in layers[turn::count] for i in layer] for turn in range(count)]


def _layer(name: str) -> str:
    parts = name.split(".")
    first = next((i for i, part in enumerate(parts) if part.isdigit()), None)
    return name if first is None else ".".join(parts[: first + 1])


@dataclass(frozen=True)
class StreamingDiloco(Synchronised):
    """DiLoCo in fragments that take turns, applied late and mixed with each worker's weights."""

    takes: ClassVar[frozenset[str]] = ONE_STAGE

    fragments: int = parameter(4, "the number of fragments F; at most one per layer and H", range=(1, 1024))
    delay: int = parameter(1, "the inner steps τ that an exchange takes; at most H − 1", range=(0, 10_000))
    mix: float = parameter(0.5, "the share α of a worker's own weights that stays when a fragment arrives", range=(0.0, 1.0))
    lr: float = parameter(0.7, "the outer learning rate η", range=(0.0, 10.0))
    momentum: float = parameter(0.9, "the outer momentum μ", range=(0.0, 0.999))
    bits: Literal[32, 16, 4] = parameter(32, "bits per element of Δ on the wire: float32, bfloat16 or four bits")

    def scheme(self, stage: str, inner: Inner, every: int, ranks: Communicator) -> Scheme:
        """Fragments with rounds of `every` inner steps."""
        delay = min(self.delay, every - 1)
        made = StreamingDiLoCo(
            inner.model, inner, every, ranks, fragments=self.fragments, delay=delay, mix=self.mix, lr=self.lr,
            momentum=self.momentum, bits=self.bits,
        )  # fmt: skip
        return LocalSteps(inner, made, hidden_steps=delay)
