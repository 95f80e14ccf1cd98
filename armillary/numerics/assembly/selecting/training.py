"""Training the network from a measured table: Huber loss on log-seconds, and a loss on the order of strategies. Needs PyTorch.

The order is what a choice is made by: for every two strategies of a mesh, log(1 + exp(-(gap predicted)·sign)), weighted by how far
apart they were measured, at most 1. Five networks are trained with a fold of families held out each, and one on everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError

from ..assembling.strategy import STRATEGIES
from .network import LAYERS, Network
from .table import FOLDS, Table, row


@dataclass(frozen=True)
class Score:
    """How a selector does on meshes that it did not learn from."""

    accuracy: float
    median_regret: float
    #: Seconds of the choices in sum, over those of the strategy that is best on average and over the oracle's.
    over_average: float
    over_oracle: float


def train(table: Table, epochs: int = 400, seed: int = 0, facts: dict[str, Any] | None = None) -> Network:
    """Trains a network on the meshes of `table`; the same table and seed give the same weights on the same machine."""
    if find_spec("torch") is None:
        raise InputError("training needs the package torch; install armillary[learn]", where="train")
    if not len(table.pictures):
        raise InputError("the table has no pictures; measure it anew", where="train")
    torch = import_module("torch")
    # A stream of its own: the caller's random numbers stay as they are.
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # Batches are small: a second thread waits more than it works.
        torch.set_num_threads(1)
        try:
            return _fitted(torch, table, epochs, facts or {})
        finally:
            torch.set_num_threads(threads)


def _fitted(torch: Any, table: Table, epochs: int, facts: dict[str, Any]) -> Network:
    half = len(STRATEGIES)
    mean, deviation = table.numbers.mean(axis=0), np.maximum(table.numbers.std(axis=0), 1e-3)
    offset = table.log_seconds.mean(axis=0)
    numbers = torch.tensor(np.clip((table.numbers - mean) / deviation, -4, 4), dtype=torch.float32)
    pictures = torch.tensor(table.pictures, dtype=torch.float32)
    target = torch.tensor(table.log_seconds - offset, dtype=torch.float32)
    level = torch.tensor(offset, dtype=torch.float32)
    weights = {name: torch.nn.Parameter(_start(torch, name, shape)) for name, shape in LAYERS.items()}
    optimiser = torch.optim.AdamW(weights.values(), lr=2e-3, weight_decay=5e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    batch = 32
    for _ in range(epochs):
        order = torch.randperm(len(numbers))
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            noise = 0.2 * torch.randn_like(numbers[chosen])
            predicted = _forward(torch, weights, pictures[chosen], numbers[chosen] + noise)
            loss = torch.nn.functional.huber_loss(predicted, target[chosen], delta=0.5)
            loss = loss + _ranking(torch, (predicted + level)[:, :half], (target[chosen] + level)[:, :half])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
    layers = {name: w.detach().numpy().copy() for name, w in weights.items()}
    layers |= {"mean": mean.astype(np.float32), "deviation": deviation.astype(np.float32), "offset": offset.astype(np.float32)}
    return Network(layers, table.device, {**table.facts, **facts})


def _start(torch: Any, name: str, shape: tuple[int, ...]) -> Any:
    if name.endswith("bias"):
        return torch.zeros(shape)
    return torch.randn(shape) * math.sqrt((0.1 if name == "out.weight" else 2.0) / math.prod(shape[1:]))


def _forward(torch: Any, w: dict[str, Any], x: Any, y: Any) -> Any:
    for k in range(3):
        x = torch.relu(torch.nn.functional.conv2d(x, w[f"conv{k}.weight"], w[f"conv{k}.bias"], stride=2, padding=1))
    x = x.mean(dim=(2, 3))
    for k in range(2):
        y = torch.relu(y @ w[f"dense{k}.weight"].T + w[f"dense{k}.bias"])
    joint = torch.relu(torch.cat([x, y], dim=1) @ w["joint.weight"].T + w["joint.bias"])
    return joint @ w["out.weight"].T + w["out.bias"]


def _ranking(torch: Any, predicted: Any, target: Any) -> Any:
    gap, truth = predicted[:, :, None] - predicted[:, None, :], target[:, :, None] - target[:, None, :]
    weight = torch.clamp(truth.abs() * 4, max=1.0)
    return (weight * torch.nn.functional.softplus(-4 * gap * truth.sign())).mean()


def cross_validated(table: Table, epochs: int = 400, tell: Callable[[str], None] = lambda line: None) -> list[Network]:
    """Trains five networks, each without the families of one fold."""
    made = []
    for fold in range(FOLDS):
        made.append(train(table.without(fold), epochs, seed=fold, facts={"fold": fold}))
        tell(f"fold {fold}: {score(table.only(fold), table.without(fold), picks(made[-1], table.only(fold)))}")
    return made


def picks(network: Network, table: Table) -> np.ndarray:
    """Returns the strategy that the network names for every mesh, int64[meshes]."""
    half = len(STRATEGIES)
    return np.array([int(np.argmin(network.log_seconds(row(table, k))[:half])) for k in range(len(table.families))], np.int64)


def score(judged: Table, learned: Table, chosen: np.ndarray) -> Score:
    """Says how choices do on `judged`, beside the strategy that has the least mean log-seconds on `learned`."""
    half = len(STRATEGIES)
    seconds = np.exp(judged.log_seconds[:, :half])
    best, mine = seconds.min(axis=1), seconds[np.arange(len(seconds)), chosen]
    average = int(np.argmin(learned.log_seconds[:, :half].mean(axis=0)))
    return Score(
        float((mine <= 1.05 * best).mean()), float(np.median(mine / best - 1)), float(mine.sum() / seconds[:, average].sum()),
        float(mine.sum() / best.sum()),
    )  # fmt: skip


def train_all(table: Table, folder: Path, epochs: int = 400, tell: Callable[[str], None] = lambda line: None) -> None:
    """Writes table.npz, fold0.npz to fold4.npz and all.npz into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for fold, network in enumerate(cross_validated(table, epochs, tell)):
        network.save(folder / f"fold{fold}.npz")
    train(table, epochs).save(folder / "all.npz")
    table.save(folder / "table.npz")
