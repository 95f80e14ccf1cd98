"""The program of a rank: trains a tiny mixture of experts, is killed once, and goes on from what the others remember."""

# Much of PyTorch carries no annotations.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import hashlib
import importlib
import os
import signal
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from armillary.comm import Aborted
from armillary.llm import TrainableTiny
from armillary.llm.tiny.transformer import Shape

from .expert_parallel import Ranks, spread
from .rckpt import Rckpt


def train(comm: Any, target: str, settings: Mapping[str, Any], work: Mapping[str, Any]) -> dict[str, Any]:
    """Trains for `work["iterations"]`; returns losses, seconds of iterations, seconds of recovery and a digest of the weights.

    `target` is a technique's `module:Class` with a policy, or "" for no checkpoints. At the beginning of iteration `kill` the process of
    rank `victim` ends itself with SIGKILL, in the first generation only.
    """
    torch.set_num_threads(1)
    ranks = Ranks(comm)
    model, optimizer = _made(ranks, work)
    ckpt = _checkpoint(target, settings, model, optimizer, ranks)
    losses: dict[int, float] = {}
    seconds: list[float] = []
    recovery_s, lost, done = 0.0, 0, 0
    fresh, left_at = comm.generation > 0, 0.0
    while True:
        try:
            if ranks.comm.generation and (fresh or left_at):
                reached, done = done, ckpt.recover() if ckpt is not None else 0
                if ckpt is None and not fresh:
                    model, optimizer = _made(ranks, work)
                if left_at:
                    recovery_s, lost = time.perf_counter() - left_at, reached - done
                fresh, left_at = False, 0.0
            while done < work["iterations"]:
                if ranks.comm.generation == 0 and done == work["kill"] and comm.rank == work["victim"]:
                    _partly(model, work, ranks, done)
                    os.kill(os.getpid(), signal.SIGKILL)
                began = time.perf_counter()
                losses[done] = _iteration(model, optimizer, ckpt, ranks, work, done)
                done += 1
                if ckpt is not None:
                    ckpt.step({"done": done})
                seconds.append(time.perf_counter() - began)
            if ckpt is not None:
                ckpt.close()
            ranks.comm.barrier()
            break
        except Aborted:
            left_at = time.perf_counter()
            ranks.comm = ranks.comm.renewed()
    raw = b"".join(value.detach().numpy().tobytes() for _, value in sorted(model.state_dict().items()))
    return {
        "losses": np.array([losses.get(i, np.nan) for i in range(work["iterations"])]), "seconds": np.array(seconds), "lost": lost,
        "recovery_s": recovery_s, "digest": hashlib.sha256(raw).hexdigest(), "stall_s": ckpt.stall_s if ckpt is not None else 0.0,
        "bookkeeping_s": ckpt.bookkeeping_s if ckpt is not None else 0.0,
    }  # fmt: skip


def _made(ranks: Ranks, work: Mapping[str, Any]) -> tuple[TrainableTiny, torch.optim.Optimizer]:
    hidden = work["hidden"]
    shape = Shape(hidden, work["layers"], 2, 2, hidden // 2, work["ffn"], 256, 1e4, 1e-5, work["tokens"], False, work["experts"], 2)
    model = spread(TrainableTiny(shape, seed=work["seed"] % (1 << 31)), ranks)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def _checkpoint(target: str, settings: Mapping[str, Any], model: Any, optimizer: Any, ranks: Ranks) -> Rckpt | None:
    if not target:
        return None
    module, _, name = target.partition(":")
    technique = getattr(importlib.import_module(module), name)(**settings)
    ckpt = Rckpt(model, optimizer, technique=technique)
    ranks.busy, ranks.routed = ckpt.busy, ckpt.routed
    return ckpt


def _batch(work: Mapping[str, Any], rank: int, number: int) -> torch.Tensor:
    rng = torch.Generator().manual_seed(work["seed"] % (1 << 31) + 1009 * number + rank)
    return torch.randint(0, 256, (work["sequences"], work["tokens"] + 1), generator=rng)


def _partly(model: TrainableTiny, work: Mapping[str, Any], ranks: Ranks, number: int) -> None:
    """A forward pass up to its middle, so that the process dies between collectives."""
    ids = _batch(work, ranks.comm.rank, number)
    model.model.layers[0](model.model.embed_tokens(ids[:, :-1]))


def _iteration(model: TrainableTiny, optimizer: Any, ckpt: Rckpt | None, ranks: Ranks, work: Mapping[str, Any], number: int) -> float:
    ids = _batch(work, ranks.comm.rank, number)
    optimizer.zero_grad(set_to_none=False)
    loss = model.loss(ids[:, :-1], ids[:, 1:])
    loss.backward()
    dense = [p for name, p in model.named_parameters() if ".experts." not in name]
    ends = [loss.detach().reshape(1), torch.tensor([ckpt.wish if ckpt else 0.0])]
    row = torch.cat([p.grad.reshape(-1) for p in dense if p.grad is not None] + ends)
    with ranks.busy(backward=True):
        rows = ranks.comm.allgather(row.numpy())
    # Added in the order of the ranks, so that the bits do not depend on the library.
    total = torch.from_numpy(np.add.accumulate(rows, axis=0)[-1] / ranks.comm.size)
    if ckpt is not None:
        ckpt.agree(float(rows[:, -1].max()))
    at = 0
    for p in dense:
        if p.grad is not None:
            p.grad.copy_(total[at : at + p.numel()].view_as(p))
            at += p.numel()
    for name, p in model.named_parameters():
        if ".experts." in name and p.grad is not None:
            p.grad /= ranks.comm.size
    optimizer.step()
    return float(total[-2])
