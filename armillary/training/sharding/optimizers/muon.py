"""Muon over shares: each matrix goes to one rank, is made orthogonal there, and its update comes back.

Every matrix has a root, chosen greedily as the rank with the fewest flops of Newton–Schulz so far. The momentum stays where the shares are,
since it is element-wise. Shares travel from rank to rank, and while one matrix is under way the roots compute others. A matrix that lies
whole on its root does not travel, so the root of a matrix that lies whole on a rank is that rank. Vectors are stepped by AdamW.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from armillary.comm import Request, waitall
from armillary.llm.tiny.muon import Scaling, orthogonalised, scaled

from ..layouts.bucket import Bucket, Piece, Whole
from ..ragged.granularity import Weight

if TYPE_CHECKING:
    from ..runtime.sharded import Sharded


def newton_schulz_flops(shape: Sequence[int], steps: int = 5) -> float:
    """Flops of making a matrix orthogonal: per step two products with the Gram matrix of the short side, and its square."""
    short, long = sorted(shape)
    return steps * (4.0 * short * short * long + 2.0 * short**3)


def roots(weights: Sequence[Weight], pieces: Sequence[Sequence[int]], n: int) -> list[int]:
    """The rank that computes each matrix: the one that holds it whole, or else the least loaded one, largest matrices first.

    `pieces[i][r]` is the number of elements of matrix i on rank r.
    """
    load = [0.0] * n
    found = [-1] * len(weights)
    flops = [newton_schulz_flops(w.shape) for w in weights]
    for i, sizes in enumerate(pieces):
        if max(sizes) == sum(sizes):
            found[i] = sizes.index(max(sizes))
            load[found[i]] += flops[i]
    for i in sorted((i for i in range(len(weights)) if found[i] < 0), key=lambda i: -flops[i]):
        found[i] = load.index(min(load))
        load[found[i]] += flops[i]
    return found


class ShardedMuon:
    """Muon on matrices and AdamW on vectors, with shares of both. `dtype` is that of the Newton–Schulz steps."""

    def __init__(
        self, sharded: Sharded, lr: float = 1e-3, *, momentum: float = 0.95, nesterov: bool = True, weight_decay: float = 0.1,
        scaling: Scaling = "match_rms_adamw", dtype: torch.dtype = torch.bfloat16,
    ) -> None:  # fmt: skip
        self.lr, self.momentum, self.nesterov, self.weight_decay = lr, momentum, nesterov, weight_decay
        self.scaling, self.dtype = scaling, dtype
        self._wires = sharded.wires
        self._matrices: list[tuple[Weight, Piece, Tensor, Tensor, Tensor]] = []
        vectors: list[Any] = []
        every = [(bucket, i) for bucket in sharded.buckets() for i in range(len(bucket.weights))]
        where: list[tuple[Bucket, int]] = []
        for (bucket, i), (weight, piece, values, gradient) in zip(every, sharded.shares(), strict=True):
            if len(weight.shape) == 2:
                where.append((bucket, i))
                self._matrices.append((weight, piece, values, gradient, torch.zeros_like(values)))
            elif piece.size:
                vector = values.requires_grad_()
                vector.grad = gradient
                vectors.append(vector)
        n = self._wires.size
        self._all = [[b.piece(i, r) for r in range(n)] for b, i in where]
        whole = [isinstance(b, Whole) for b, _ in where]
        #: The rank of each matrix; where every rank holds everything, each computes all.
        self.roots = roots([m[0] for m in self._matrices], [[p.size for p in row] for row in self._all], n)
        self._replicated = any(whole)
        self._vectors = torch.optim.AdamW(vectors, lr=lr, weight_decay=weight_decay) if vectors else None

    @torch.no_grad()
    def step(self) -> None:
        """Make one step with the gradients that are there."""
        directions = []
        for _, _, _, gradient, velocity in self._matrices:
            velocity.lerp_(gradient, 1 - self.momentum)
            directions.append(gradient.lerp(velocity, self.momentum) if self.nesterov else velocity)
        updates = self._computed(directions)
        for (weight, _, values, _, _), update in zip(self._matrices, updates):
            values.mul_(1 - self.lr * self.weight_decay)
            values.add_(update, alpha=-scaled(self.lr, weight.shape, self.scaling))
        if self._vectors is not None:
            with torch.enable_grad():
                self._vectors.step()

    def _computed(self, directions: list[Tensor]) -> list[Tensor]:
        """This rank's share of the orthogonal update of every matrix."""
        mine, ranks = self._wires.rank, self._wires.ranks
        if self._replicated or self._wires.size == 1:
            return [self._orthogonal(d.view(w.shape)).reshape(-1) for (w, *_), d in zip(self._matrices, directions)]
        sends: list[Request] = []
        whole: dict[int, tuple[Tensor, list[Request]]] = {}
        for i, (weight, piece, _, _, _) in enumerate(self._matrices):
            root = self.roots[i]
            if root == mine:
                room = torch.empty(weight.size, dtype=directions[i].dtype)
                room[piece.start : piece.stop] = directions[i]
                others = [(r, p) for r, p in enumerate(self._all[i]) if r != mine and p.size]
                requests = [ranks.irecv(room[p.start : p.stop].numpy(), source=r, tag=2 * i) for r, p in others]
                whole[i] = (room, requests)
            elif piece.size:
                self._wires.bytes += directions[i].nbytes
                sends.append(ranks.isend(directions[i].contiguous().numpy(), root, tag=2 * i))
        updates = [torch.empty_like(d) for d in directions]
        arrivals = [
            ranks.irecv(updates[i].numpy(), source=self.roots[i], tag=2 * i + 1)
            for i, (_, piece, *_) in enumerate(self._matrices)
            if self.roots[i] != mine and piece.size
        ]
        kept = []
        for i, (room, requests) in whole.items():
            waitall(requests)
            made = self._orthogonal(room.view(self._matrices[i][0].shape)).reshape(-1).contiguous()
            kept.append(made)
            for rank, piece in enumerate(self._all[i]):
                if rank == mine:
                    updates[i].copy_(made[piece.start : piece.stop])
                elif piece.size:
                    self._wires.bytes += piece.size * made.element_size()
                    sends.append(ranks.isend(made[piece.start : piece.stop].numpy(), rank, tag=2 * i + 1))
        waitall(arrivals)
        waitall(sends)
        return updates

    def _orthogonal(self, matrix: Tensor) -> Tensor:
        return orthogonalised(matrix, dtype=self.dtype).to(matrix.dtype)

    def states(self) -> Iterator[Tensor]:
        """All tensors of the optimizer's state."""
        for *_, velocity in self._matrices:
            yield velocity
        if self._vectors is not None:
            for state in self._vectors.state.values():
                yield from (x for x in state.values() if isinstance(x, Tensor))
