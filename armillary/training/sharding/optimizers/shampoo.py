"""Shampoo in blocks: each block of a matrix has preconditioners of its own, L ← L + GGᵀ and R ← R + GᵀG, and steps by L^(−1/4) G R^(−1/4).

A block's preconditioners need the whole block, so ragged shares whose cuts fall between blocks need no communication. Shares with cut
blocks are refused. Vectors are stepped by AdamW.

Shampoo: Preconditioned Stochastic Tensor Optimization, ICML 2018.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from armillary.errors import InputError

from .blocks import Region, regions

if TYPE_CHECKING:
    from ..runtime.sharded import Sharded


class Shampoo:
    """Blocked Shampoo on matrices and AdamW on vectors."""

    def __init__(self, sharded: Sharded, lr: float = 1e-3, *, eps: float = 1e-6, weight_decay: float = 0.0) -> None:
        self.lr, self.eps, self.weight_decay = lr, eps, weight_decay
        self._blocks: list[tuple[Region, Tensor, Tensor, Tensor, Tensor]] = []
        cut = sum(bucket.cut_blocks() for bucket in sharded.buckets())
        if cut:
            raise InputError(f"found {cut} cut blocks; expected none, because a preconditioner needs its whole block", where="shampoo")
        vectors: list[Any] = []
        for weight, piece, values, gradient in sharded.shares():
            if not piece.size:
                continue
            if not weight.matrix or weight.grain == 1:
                vector = values.requires_grad_()
                vector.grad = gradient
                vectors.append(vector)
                continue
            v, g = values.view(-1, weight.columns), gradient.view(-1, weight.columns)
            for region in regions(v.shape[0], weight.columns, *weight.block_shape):
                down, across = region.blocks
                left = torch.zeros(down, across, region.high, region.high, dtype=values.dtype)
                right = torch.zeros(down, across, region.wide, region.wide, dtype=values.dtype)
                self._blocks.append((region, v, g, left, right))
        self._vectors = torch.optim.AdamW(vectors, lr=lr, weight_decay=weight_decay) if vectors else None

    @torch.no_grad()
    def step(self) -> None:
        """Make one step with the gradients that are there."""
        for region, values, gradients, left, right in self._blocks:
            g = region.of(gradients).permute(0, 2, 1, 3)
            left.add_(g @ g.mT)
            right.add_(g.mT @ g)
            update = self._root(left) @ g @ self._root(right)
            block = region.of(values)
            block.mul_(1 - self.lr * self.weight_decay)
            block.add_(update.permute(0, 2, 1, 3), alpha=-self.lr)
        if self._vectors is not None:
            with torch.enable_grad():
                self._vectors.step()

    def _root(self, matrix: Tensor) -> Tensor:
        """The inverse fourth root of each matrix, computed in float64."""
        value, vector = torch.linalg.eigh(matrix.double())
        made = (vector * (value.clamp(min=0) + self.eps).pow(-0.25).unsqueeze(-2)) @ vector.mT
        return made.to(matrix.dtype)

    def states(self) -> Iterator[Tensor]:
        """All tensors of the optimizer's state."""
        for _, _, _, left, right in self._blocks:
            yield left
            yield right
        if self._vectors is not None:
            for state in self._vectors.state.values():
                yield from (x for x in state.values() if isinstance(x, Tensor))
