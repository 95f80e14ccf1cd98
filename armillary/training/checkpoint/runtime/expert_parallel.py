"""Experts spread over ranks: tokens travel to their experts and back, in both passes, through all-to-alls.

It takes the place of `armillary.llm`'s Mixture, with the same weights: rank r keeps the experts r·E/n to (r + 1)·E/n − 1. Each all-to-all
is announced to the checkpoint, so that the spans between them are known.
"""

# Much of PyTorch carries no annotations.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from armillary.errors import InputError
from armillary.llm.tiny.trainable import Mixture, TrainableTiny

Busy = Callable[..., AbstractContextManager[Any]]


class Ranks:
    """The ranks now, and the checkpoint to tell; both are replaced when a process is."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.busy: Busy = lambda **_: contextlib.nullcontext()
        self.routed: Callable[[int, Any], None] = lambda layer, tokens: None

    def swap(self, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """Rows [n, hidden] to the ranks that they are for, `sent[r]` of them to rank r; returns those that came."""
        width = rows.shape[1]
        flat = rows.detach().contiguous().numpy().reshape(-1)
        got = np.empty(sum(received) * width, flat.dtype)
        self.comm.alltoallv(flat, [n * width for n in sent], got, [n * width for n in received])
        return torch.from_numpy(got).view(-1, width)


class _Elsewhere(torch.autograd.Function):
    """The outputs of experts for rows that are sorted by expert; the experts' own graph lives on the rank that has them."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, experts: nn.ModuleList, counts: Any, ranks: Ranks, layer: int) -> Tensor:
        """rows [n, hidden], counts [ranks, experts per rank] of this rank's rows."""
        theirs = np.empty_like(counts)
        with ranks.busy(after=layer):
            ranks.comm.alltoall(np.ascontiguousarray(counts), theirs)
            sent, received = counts.sum(axis=1).tolist(), theirs.sum(axis=1).tolist()
            came = ranks.swap(rows, sent, received)
        # Rows come sorted by source, then by expert.
        places = [torch.cat([torch.arange(a, b) for a, b in _pieces(theirs, e)]) for e in range(theirs.shape[1])]
        place = torch.cat(places)
        with torch.enable_grad():
            inputs = came.requires_grad_()
            joined = torch.cat([expert(inputs[mine]) for expert, mine in zip(experts, places, strict=True)])
        outputs = torch.empty_like(came)
        outputs[place] = joined.detach()
        ctx.kept = (inputs, joined, place, sent, received, ranks, layer)
        with ranks.busy():
            return ranks.swap(outputs, received, sent)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients travel the same way."""
        inputs, joined, place, sent, received, ranks, layer = ctx.kept
        with ranks.busy(after=layer, backward=True):
            came = ranks.swap(grads[0], sent, received)
        # An expert without a row still takes part, so that its gradient is zero and not absent.
        torch.autograd.backward([joined], [came[place]])
        with ranks.busy(backward=True):
            back = ranks.swap(inputs.grad, received, sent)
        return back, None, None, None, None


def _pieces(theirs: Any, expert: int) -> list[tuple[int, int]]:
    """Where the rows of one local expert lie among the rows that came: one piece per source."""
    starts = np.concatenate([[0], np.cumsum(theirs.reshape(-1))])
    width = theirs.shape[1]
    return [(int(starts[source * width + expert]), int(starts[source * width + expert + 1])) for source in range(len(theirs))]


class SpreadMixture(nn.Module):
    """A mixture whose experts are spread over ranks."""

    def __init__(self, whole: Mixture, ranks: Ranks, layer: int) -> None:
        super().__init__()
        size, rank = ranks.comm.size, ranks.comm.rank
        total = len(whole.experts)
        if total % size:
            raise InputError(f"found {total} experts for {size} ranks; expected a multiple")
        self.top_k, self.total, self.gate, self._ranks, self._layer = whole.top_k, total, whole.gate, ranks, layer
        each = total // size
        self.experts = nn.ModuleList(list(whole.experts)[rank * each : (rank + 1) * each])

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., hidden] to the same shape."""
        flat = x.reshape(-1, x.shape[-1])
        chance = torch.softmax(self.gate(flat), -1)
        share, chosen = torch.topk(chance, self.top_k, dim=-1)
        share = share / share.sum(-1, keepdim=True)
        order = torch.argsort(chosen.reshape(-1), stable=True)
        token = order // self.top_k
        counts = torch.bincount(chosen.reshape(-1), minlength=self.total).numpy()
        self._ranks.routed(self._layer, counts)
        spread = counts.reshape(self._ranks.comm.size, -1)
        made = _Elsewhere.apply(flat[token], self.experts, spread, self._ranks, self._layer)
        out = torch.zeros_like(flat).index_add(0, token, made * share.reshape(-1)[order, None])
        return out.view_as(x)


def spread(model: TrainableTiny, ranks: Ranks) -> TrainableTiny:
    """The model with its experts spread over the ranks; every rank gives the same one."""
    for number, block in enumerate(model.model.layers):
        whole: Any = block.block_sparse_moe
        block.block_sparse_moe = SpreadMixture(whole, ranks, number)
    return model
