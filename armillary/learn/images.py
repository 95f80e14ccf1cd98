"""Small image networks, each an encoder and a head: `Cnn2` and `Cnn3` for images of one size, `CnnEncoder` for images of any size."""

from __future__ import annotations

import itertools
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as fn

from .kinds import CnnConfig
from .perceptron import Block


class _Cnn(Block[CnnConfig]):
    kind: Literal["cnn2", "cnn3", "cnn-encoder"]

    def __init__(
        self, channels: int | CnnConfig = 1, size: tuple[int, int] = (28, 28), width: int = 8, outputs: int = 10, *,
        layers: int = 3, seed: int = 0,
    ) -> None:  # fmt: skip
        made = channels if isinstance(channels, CnnConfig) else CnnConfig(
            kind=self.kind, channels=channels, size=size, width=width, layers=layers, outputs=outputs
        )  # fmt: skip
        super().__init__(made, seed)

    def _build(self, config: CnnConfig) -> None:
        stride = 2 if config.kind == "cnn-encoder" else 1
        sizes = [config.channels, *(config.width << i for i in range(config.depth))]
        self.encoder = nn.ModuleList(nn.Conv2d(a, b, 3, stride=stride, padding=1) for a, b in itertools.pairwise(sizes))
        self.head = nn.Linear(config.features, config.outputs)

    def features(self, x: Tensor) -> Tensor:
        """The encoding of [batch, channels, height, width], [batch, features]."""
        pooled = self.config.kind == "cnn-encoder"
        for layer in self.encoder:
            x = fn.relu(layer(x))
            x = x if pooled else fn.max_pool2d(x, 2)
        return x.mean((2, 3)) if pooled else x.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, outputs]."""
        found: Tensor = self.head(self.features(x))
        return found


class Cnn2(_Cnn):
    """Two 3×3 convolutions with pooling, flattened."""

    kind = "cnn2"


class Cnn3(_Cnn):
    """Three 3×3 convolutions with pooling, flattened."""

    kind = "cnn3"


class CnnEncoder(_Cnn):
    """3×3 convolutions with stride 2 and the mean over what remains of the image."""

    kind = "cnn-encoder"
