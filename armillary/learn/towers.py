"""`CrossDeep` multiplies features with each other explicitly; `DualTower` scores every pair of two sides from one encoding each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from .kinds import Activation, CrossDeepConfig, DualTowerConfig, MlpConfig
from .perceptron import Block, Mlp, dense

#: The most bytes of scores and intermediate products that `scores` holds at once, beside its result.
MOST_BYTES = 1 << 26


class LowRank(nn.Module):
    """`x U Vᵀ + b` with U and V of shape [dim, rank], in the place of a square linear layer."""

    def __init__(self, dim: int, rank: int) -> None:
        super().__init__()
        self.u = nn.Parameter(torch.empty(dim, rank))
        self.v = nn.Parameter(torch.empty(dim, rank))
        self.bias = nn.Parameter(torch.empty(dim))

    def forward(self, x: Tensor) -> Tensor:
        """W x + b with W = U Vᵀ, over [..., dim]."""
        return (x @ self.v) @ self.u.T + self.bias


class CrossDeep(Block[CrossDeepConfig]):
    """Deep & Cross v2: `x_{l+1} = x_0 ⊙ (W_l x_l + b_l) + x_l` beside a perceptron; both concatenated go through a linear layer."""

    def __init__(
        self, dim: int | CrossDeepConfig, cross: int = 2, deep: Sequence[int] = (128, 64), out: int = 32, *,
        rank: int = 0, activation: Activation = "relu", seed: int = 0,
    ) -> None:  # fmt: skip
        made = dim if isinstance(dim, CrossDeepConfig) else CrossDeepConfig(
            dim=dim, cross=cross, deep=tuple(deep), out=out, rank=rank, activation=activation
        )  # fmt: skip
        super().__init__(made, seed)

    def _build(self, config: CrossDeepConfig) -> None:
        make = (lambda: LowRank(config.dim, config.rank)) if config.rank else (lambda: nn.Linear(config.dim, config.dim))
        self.cross = nn.ModuleList(make() for _ in range(config.cross))
        self.deep = dense((config.dim, *config.deep), config.activation)
        self.head = nn.Linear(config.dim + (config.deep[-1] if config.deep else 0), config.out)

    def features(self, x: Tensor) -> Tensor:
        """The cross layers' output, and the perceptron's where there is one, side by side."""
        crossed = x
        for layer in self.cross:
            crossed = x * layer(crossed) + crossed
        return torch.cat([crossed, self.deep(x)], -1) if self.config.deep else crossed

    def forward(self, x: Tensor) -> Tensor:
        """[..., out]."""
        found: Tensor = self.head(self.features(x))
        return found


class DualTower(Block[DualTowerConfig]):
    """Encodes each side alone, so N left and M right things cost N + M encodings and one matrix of scores."""

    def __init__(
        self, left: MlpConfig | CrossDeepConfig | DualTowerConfig, right: MlpConfig | CrossDeepConfig | None = None, *,
        interaction: Literal["bilinear", "dot", "cosine"] = "bilinear", seed: int = 0,
    ) -> None:  # fmt: skip
        if isinstance(left, DualTowerConfig):
            made = left
        else:
            made = DualTowerConfig(left=left, right=left if right is None else right, interaction=interaction)
        super().__init__(made, seed)

    def _build(self, config: DualTowerConfig) -> None:
        if config.interaction == "bilinear":
            out = config.left.outputs if isinstance(config.left, MlpConfig) else config.left.out
            self.matrix = nn.Parameter(torch.empty(out, out))
            self.u = nn.Parameter(torch.empty(out))
            self.w = nn.Parameter(torch.empty(out))
            self.bias = nn.Parameter(torch.empty(1))
        self.left = _tower(config.left)
        self.right = _tower(config.right)

    def encode_left(self, x: Tensor) -> Tensor:
        """[..., out] of the left side; may be cached."""
        return self._normal(self.left(x))

    def encode_right(self, x: Tensor) -> Tensor:
        """[..., out] of the right side; may be cached."""
        return self._normal(self.right(x))

    def _normal(self, e: Tensor) -> Tensor:
        return fn.normalize(e, dim=-1, eps=1e-8) if self.config.interaction == "cosine" else e

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """The score of each pair of rows, [n]."""
        return self.pair(self.encode_left(left), self.encode_right(right))

    def pair(self, left: Tensor, right: Tensor) -> Tensor:
        """The score of each pair of encoded rows, [n]."""
        if self.config.interaction != "bilinear":
            return (left * right).sum(-1)
        return ((left @ self.matrix) * right).sum(-1) + left @ self.u + right @ self.w + self.bias

    def scores(self, left: Tensor, right: Tensor, *, block: int = 8192) -> Tensor:
        """The scores of all pairs of encoded rows, [n left, n right], in blocks that hold at most 64 MiB beside the result."""
        out = left.new_empty(len(left), len(right))
        rows = max(1, min(block, MOST_BYTES // max(1, 4 * min(block, len(right)))))
        for i in range(0, len(left), rows):
            e = left[i : i + rows]
            bilinear = self.config.interaction == "bilinear"
            turned = e @ self.matrix if bilinear else e
            for j in range(0, len(right), block):
                part = turned @ right[j : j + block].T
                if bilinear:
                    part += (e @ self.u)[:, None] + (right[j : j + block] @ self.w + self.bias)[None, :]
                out[i : i + rows, j : j + block] = part
        return out


def _tower(config: MlpConfig | CrossDeepConfig) -> Mlp | CrossDeep:
    return Mlp(config) if isinstance(config, MlpConfig) else CrossDeep(config)
