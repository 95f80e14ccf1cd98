"""Programs of ranks that are processes, which find them by name."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch

from armillary.training.lowcomm import DiLoCo
from armillary.training.lowcomm.workers import training


def own_loop(ranks: Any, every: int) -> Any:
    """A user's loop over torch's default group, without a communicator."""
    torch.manual_seed(ranks.rank)
    model = torch.nn.Linear(6, 4)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    rounds = DiLoCo(model, inner, every=every)
    for step in range(7):
        x = torch.randn(5, 6, generator=torch.Generator().manual_seed(10 * step + ranks.rank))
        inner.zero_grad()
        model(x).square().mean().backward()
        inner.step()
        rounds.step()
    rounds.finish()
    return rounds.theta.numpy()


def dies(ranks: Any, target: str, settings: Any, work: Any, step: int) -> Any:
    """Training in which worker 1 is killed after its `step`-th backward pass."""
    done = [0]
    check = training.check_loss

    def counted(loss: Any, at: int, worker: int) -> float:
        done[0] += 1
        if worker == 1 and done[0] == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return check(loss, at, worker)

    training.check_loss = counted
    return training.train(ranks, target, settings, work)
