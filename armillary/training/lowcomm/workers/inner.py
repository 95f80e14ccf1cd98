"""The inner optimizer of a worker, which is the same for every technique: clipping, a schedule, and AdamW or nanochat's Muon.

Weights and gradients lie in one flat buffer each, so that techniques exchange them without copies.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from armillary.llm import Muon, TrainableTiny

Optimizer = Literal["adamw", "muon"]
Schedule = Literal["cosine", "warmdown"]
#: The norm to which gradients are clipped, and the shares of the steps that warm up and warm down.
CLIP, WARM_UP, WARM_DOWN = 1.0, 0.05, 0.2
#: AdamW, whose rate is that of a width of 64 and falls with the square root of the width.
ADAMW_LR, ADAMW_BETAS, DECAY = 3e-3, (0.9, 0.95), 0.1
#: nanochat's rates for matrices, the head and the embedding; the last two at a width of 768.
MUON_LR, HEAD_LR, EMBEDDING_LR = 0.02, 0.004, 0.2


def factor(step: int, steps: int, schedule: Schedule = "cosine") -> float:
    """The share of the learning rate at step 0 … steps − 1: a warm-up, then a cosine to zero, or a constant and a linear warm-down."""
    warm = max(1, math.ceil(WARM_UP * steps))
    if step < warm:
        return (step + 1) / warm
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
    return min(1.0, (steps - step) / max(1.0, WARM_DOWN * steps))


class Inner:
    """One worker's model and optimizer for one stage of `steps` inner steps."""

    def __init__(
        self, model: TrainableTiny, steps: int, optimizer: Optimizer = "adamw", schedule: Schedule = "cosine", lr: float = 1.0
    ) -> None:
        self.model, self.steps, self.schedule = model, steps, schedule
        self.weights, self.gradients = flattened(model)
        width = model.shape.hidden
        self._optimizers: list[torch.optim.Optimizer]
        if optimizer == "adamw":
            rate = lr * ADAMW_LR * math.sqrt(64 / width)
            self._optimizers = [torch.optim.AdamW(model.parameters(), rate, ADAMW_BETAS, weight_decay=DECAY, fused=True)]
        else:
            body, wider = model.model, lr * (width / 768) ** -0.5
            matrices = [p for layer in body.layers for p in layer.parameters()]
            others = [
                {"params": [model.lm_head.weight], "lr": HEAD_LR * wider},
                {"params": [body.embed_tokens.weight], "lr": EMBEDDING_LR * wider},
            ]
            self._optimizers = [
                Muon(matrices, lr * MUON_LR, weight_decay=0.0, dtype=torch.float32),
                torch.optim.AdamW(others, betas=(0.8, 0.95), eps=1e-10, weight_decay=0.0, fused=True),
            ]
        self._rates = [[group["lr"] for group in one.param_groups] for one in self._optimizers]
        #: Inner steps so far, whether or not the optimizer was called in each.
        self.done = 0
        #: CPU seconds of all updates.
        self.update_s = 0.0

    def update(self, scale: float = 1.0, window: int = 1) -> None:
        """Clip the gradients, take the optimizer's step with `scale` times the scheduled rate, and clear the gradients.

        The step stands for the last `window` inner steps, and its rate is the mean of theirs.
        """
        began = time.thread_time()
        norm = float(self.gradients.norm())
        if norm > CLIP:
            self.gradients.mul_(CLIP / norm)
        first = self.done - window
        share = scale * sum(factor(step, self.steps, self.schedule) for step in range(first, self.done)) / window
        for optimizer, rates in zip(self._optimizers, self._rates):
            for group, rate in zip(optimizer.param_groups, rates):
                group["lr"] = rate * share
            optimizer.step()
        self.gradients.zero_()
        self.update_s += time.thread_time() - began

    def forget(self) -> None:
        """Drop the state of the optimizer, as if it were new."""
        for optimizer in self._optimizers:
            optimizer.state.clear()

    @property
    def optimizers(self) -> Sequence[torch.optim.Optimizer]:
        """The optimizers of PyTorch inside."""
        return self._optimizers

    def state_dict(self) -> dict[str, Any]:
        """Weights, gradients that wait to be used, the optimizers' states, and the number of inner steps."""
        states = [one.state_dict() for one in self._optimizers]
        return {"weights": self.weights.clone(), "gradients": self.gradients.clone(), "optimizers": states, "done": self.done}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a state of an optimizer of the same kind."""
        self.weights.copy_(state["weights"])
        self.gradients.copy_(state["gradients"])
        self.done = int(state["done"])
        for optimizer, one in zip(self._optimizers, state["optimizers"]):
            optimizer.load_state_dict(one)


def flattened(model: torch.nn.Module) -> tuple[Tensor, Tensor]:
    """Move all parameters into one flat buffer and give them gradients in another; returns both."""
    every = list(model.parameters())
    weights = torch.cat([p.detach().reshape(-1) for p in every])
    gradients = torch.zeros_like(weights)
    at = 0
    for p in every:
        piece = slice(at, at + p.numel())
        p.data = weights[piece].view_as(p)
        p.grad = gradients[piece].view_as(p)
        at += p.numel()
    return weights, gradients
