"""The policy and value network: one head scores every waiting job, whatever its place in the queue; others score waiting and the sets."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from armillary.learn.perceptron import Mlp

from .observation import CONTEXT, FACTS, INPUTS, JOBS, SETS


class Scorer(nn.Module):
    """Logits of ten jobs, of waiting and, with `choose_nodes`, of eight sets of QPUs; and the value of an observation."""

    def __init__(self, choose_nodes: bool = False, hidden: tuple[int, ...] = (64, 64), seed: int = 0) -> None:
        super().__init__()
        self.score = Mlp(CONTEXT + FACTS, hidden, 1, activation="tanh", seed=seed)
        self.wait = Mlp(CONTEXT + FACTS, hidden[:1], 1, activation="tanh", seed=seed + 1)
        self.value = Mlp(INPUTS, hidden, 1, activation="tanh", seed=seed + 2)
        if choose_nodes:
            self.sets = Mlp(INPUTS, hidden, SETS, activation="tanh", seed=seed + 3)
        with torch.no_grad():
            # A policy that begins nearly uniform explores.
            for name, part in self.named_children():
                if name != "value":
                    part.head.weight.mul_(0.01)  # type: ignore[union-attr, operator]
                    part.head.bias.zero_()  # type: ignore[union-attr, operator]

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """(logits, value) of [batch, inputs]."""
        context, rows = observation[:, :CONTEXT], observation[:, CONTEXT:].reshape(-1, JOBS, FACTS)
        joined = torch.cat([context[:, None].expand(-1, JOBS, -1), rows], -1)
        logits = [self.score(joined)[..., 0], self.wait(torch.cat([context, rows.mean(1)], -1))]
        if hasattr(self, "sets"):
            logits.append(self.sets(observation))
        return torch.cat(logits, -1), self.value(observation)[..., 0]
