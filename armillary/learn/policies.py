"""`ActorCritic`: the policy and value network that PPO trains by default."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .determinism import orthogonal
from .kinds import Activation, ActorCriticConfig
from .perceptron import ACTIVATIONS, Block, Mlp


class ActorCritic(Block[ActorCriticConfig]):
    """Logits of every factor and the value of an observation; with `entities` one head is shared by all entities.

    The normalisation of observations (mean and 1/standard deviation) and of returns is stored with the weights.
    """

    observation_mean: Tensor
    observation_scale: Tensor
    return_scale: Tensor
    encoder: Mlp
    policy: Mlp
    value: Mlp

    def __init__(
        self, inputs: int | ActorCriticConfig, factors: Sequence[int] = (2,), hidden: Sequence[int] = (64, 64), *,
        entities: bool = False, activation: Activation = "tanh", seed: int = 0,
    ) -> None:  # fmt: skip
        made = inputs if isinstance(inputs, ActorCriticConfig) else ActorCriticConfig(
            inputs=inputs, factors=tuple(factors), hidden=tuple(hidden), entities=entities, activation=activation
        )  # fmt: skip
        super().__init__(made, seed)

    def _build(self, config: ActorCriticConfig) -> None:
        for name, size in (("observation_mean", config.inputs), ("observation_scale", config.inputs), ("return_scale", 1)):
            self.register_parameter(name, nn.Parameter(torch.empty(size), requires_grad=False))
        for name, part in config.parts.items():
            self.add_module(name, Mlp(part))
        self._between = ACTIVATIONS[config.activation]()

    def reset(self, seed: int) -> None:
        """Orthogonal weights: √2 inside, 0.01 for the policy's head, 1 for the value's."""
        with torch.no_grad():
            self.observation_mean.zero_()
            self.observation_scale.fill_(1)
            self.return_scale.fill_(1)
        for name, layer in self.named_modules():
            if isinstance(layer, nn.Linear):
                gain = {"policy.head": 0.01, "value.head": 1.0}.get(name, math.sqrt(2))
                orthogonal(layer, gain, seed, name)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """(logits, value): [batch, Σ factors] or [batch, entities, actions], and [batch]."""
        x = ((observation - self.observation_mean) * self.observation_scale).clamp(-10, 10)
        if not self.config.entities:
            return self.policy(x), self.value(x)[..., 0]
        encoded = self._between(self.encoder(x))
        mean = encoded.mean(-2, keepdim=True)
        return self.policy(torch.cat([encoded, mean.expand_as(encoded)], -1)), self.value(mean[..., 0, :])[..., 0]
