"""`Block`, what all networks of this package share, and `Mlp`, the plainest of them.

A block is a PyTorch module that knows its configuration, so that it can be stored and frozen, and whose weights depend on the seed and
on nothing else. Making one draws no number from PyTorch's generator.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from armillary.errors import InputError

from .determinism import initialise
from .kinds import Activation, Config, MlpConfig

C = TypeVar("C", bound=Config)
Array = np.ndarray[Any, np.dtype[np.float32]]
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU, "silu": nn.SiLU}


class Block(nn.Module, Generic[C]):
    """A module made from its configuration. Subclasses build their layers in `_build`."""

    config: C

    def __init__(self, config: C, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        with torch.device("meta"):  # Layers that are made there draw no random numbers.
            self._build(config)
        self.to_empty(device="cpu")
        self.reset(seed)

    def _build(self, config: C) -> None:
        raise NotImplementedError

    def reset(self, seed: int) -> None:
        """Draws the weights anew."""
        initialise(self, seed)

    def state_arrays(self) -> list[Array]:
        """Copies of all weights as float32 arrays, in the order of the module's state."""
        return [value.detach().cpu().numpy().copy() for value in self.state_dict().values()]

    def load_arrays(self, arrays: Sequence[Array]) -> None:
        """Sets all weights from arrays in the order of `state_arrays`."""
        state = self.state_dict()
        if len(arrays) != len(state):
            raise InputError(f"found {len(arrays)} arrays; expected the {len(state)} of {self.config.kind}")
        for (name, old), array in zip(state.items(), arrays):
            if tuple(old.shape) != np.shape(array):
                raise InputError(f"{name}: found shape {np.shape(array)}; expected {tuple(old.shape)}")
        with torch.no_grad():
            for old, array in zip(state.values(), arrays):
                old.copy_(torch.from_numpy(np.ascontiguousarray(array, np.float32)))


def dense(sizes: Sequence[int], activation: Activation) -> nn.Sequential:
    """Linear layers from each size to the next, each followed by the activation."""
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += nn.Linear(a, b), ACTIVATIONS[activation]()
    return nn.Sequential(*layers)


class Mlp(Block[MlpConfig]):
    """A perceptron over [..., inputs] whose hidden layers are `encoder` and whose last linear layer is `head`."""

    encoder: nn.Sequential
    head: nn.Linear

    def __init__(
        self, inputs: int | MlpConfig, hidden: Sequence[int] = (64, 64), outputs: int = 1, *, activation: Activation = "relu", seed: int = 0
    ) -> None:
        made = inputs if isinstance(inputs, MlpConfig) else MlpConfig(
            inputs=inputs, hidden=tuple(hidden), outputs=outputs, activation=activation
        )  # fmt: skip
        super().__init__(made, seed)

    def _build(self, config: MlpConfig) -> None:
        self.encoder = dense((config.inputs, *config.hidden), config.activation)
        self.head = nn.Linear(config.hidden[-1] if config.hidden else config.inputs, config.outputs)

    def features(self, x: Tensor) -> Tensor:
        """The last hidden layer, [..., hidden[-1]]."""
        found: Tensor = self.encoder(x)
        return found

    def forward(self, x: Tensor) -> Tensor:
        """[..., outputs]."""
        found: Tensor = self.head(self.features(x))
        return found
