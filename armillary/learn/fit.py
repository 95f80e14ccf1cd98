"""The supervised loop: AdamW for a number of steps, with the best weights on the validation slice kept.

The budget is in steps and never in seconds, so a slow machine gets the same weights as a fast one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from armillary.errors import InputError
from armillary.streams import stream

from .determinism import deterministic
from .losses import Loss
from .optimiser import Adam
from .store import Model

if TYPE_CHECKING:
    import polars as pl

Array = np.ndarray[Any, Any]
#: (inputs, targets) of batch number i, drawn from the generator that belongs to i.
Draw = Callable[[int, np.random.Generator], tuple[Any, Any]]


@dataclass(frozen=True)
class Fitted:
    """What `fit` leaves: the module with its best weights, the loss over the steps, and the best validation loss and its step."""

    module: nn.Module
    history: pl.DataFrame
    validation_loss: float
    best_step: int
    steps: int
    deterministic: bool = True

    def model(self, **facts: Any) -> Model:
        """The model to store; facts as in `Model.of`."""
        known: dict[str, Any] = {"steps": self.steps, "deterministic": self.deterministic}
        if math.isfinite(self.validation_loss):
            known["metrics"] = {"validation_loss": self.validation_loss}
        return Model.of(self.module, **known | facts)


def fit(
    model: nn.Module, data: tuple[Any, Any] | Draw, loss: Loss, *, steps: int, batch: int = 256, lr: float = 1e-3,
    weight_decay: float = 0.0, schedule: Literal["cosine", "constant"] = "cosine", patience_steps: int | None = None, seed: int = 0,
    validation: tuple[Any, Any] | float = 0.15, device: str = "cpu", progress: Callable[[float], None] | None = None,
) -> Fitted:  # fmt: skip
    """Trains a module in place and returns it with its history (a Polars table of step, train loss, validation loss, learning rate).

    data: (inputs, targets), where inputs are an array or a tuple of arrays that the module takes; or a function that draws batch i from
    the generator that belongs to i, for data that are made as they are needed.
    loss: a function of prediction and target. steps: optimiser steps. batch: rows per step. lr: the first learning rate.
    patience_steps: training stops when the validation loss has not improved for so many steps.
    validation: (inputs, targets), or the share of the rows that is set aside; without any, the last weights are kept.
    seed: decides batches and the validation slice; the weights were drawn when the module was made.
    """
    if steps <= 0 or batch <= 0:
        raise InputError(f"found {steps} steps of {batch} rows; expected at least one of each")
    with deterministic(device):
        model.to(device)
        model.train()
        draw, held = _sources(data, validation, batch, seed, device)
        optimiser = Adam((p for p in model.parameters() if p.requires_grad), lr, weight_decay=weight_decay)
        every = max(1, steps // 50)
        rows: list[tuple[int, float, float, float]] = []
        best = evaluate(model, held, loss) if held else math.inf
        best_step, kept = 0, _copy(model)
        running, done = torch.zeros((), device=device), 0
        for step in range(1, steps + 1):
            rate = lr * (0.5 * (1 + math.cos(math.pi * (step - 1) / steps)) if schedule == "cosine" else 1.0)
            optimiser.lr = rate
            inputs, target = draw(step - 1)
            optimiser.clear()
            value = loss(model(*inputs), target)
            torch.autograd.backward(value)
            optimiser.step()
            running += value.detach()
            done += 1
            if step % every == 0 or step == steps:
                train_loss = float(running) / done
                if not math.isfinite(train_loss):
                    raise InputError(f"found a loss of {train_loss} after {step} steps; expected a finite one (lower lr, or standardise)")
                held_loss = evaluate(model, held, loss) if held else math.nan
                rows.append((step, train_loss, held_loss, rate))
                running, done = torch.zeros((), device=device), 0
                if held and held_loss < best:
                    best, best_step, kept = held_loss, step, _copy(model)
                if progress is not None:
                    progress(step / steps)
                if held and patience_steps is not None and step - best_step >= patience_steps:
                    break
        if held:
            model.load_state_dict(kept)
        model.to("cpu")
        model.eval()
    return Fitted(model, _table(rows), best if held else math.nan, best_step if held else rows[-1][0], rows[-1][0], device == "cpu")


def evaluate(model: nn.Module, data: tuple[Sequence[Tensor], Tensor], loss: Loss, block: int = 8192) -> float:
    """The mean loss over (inputs, targets) of tensors, in blocks of rows."""
    inputs, target = data
    training = model.training
    model.eval()
    total = 0.0
    with torch.no_grad():
        for i in range(0, len(target), block):
            part = target[i : i + block]
            total += float(loss(model(*(one[i : i + block] for one in inputs)), part)) * len(part)
    model.train(training)
    return total / len(target)


def _sources(data: Any, validation: Any, batch: int, seed: int, device: str) -> tuple[Callable[[int], Any], Any]:
    held = _tensors(validation, device) if isinstance(validation, tuple) else None
    if callable(data):

        def drawn(i: int) -> tuple[Any, Tensor]:
            return _tensors(data(i, stream(seed, "batches", str(i))), device)

        return drawn, held
    inputs, target = _tensors(data, device)
    rows = torch.arange(len(target))
    if held is None and validation:
        order = stream(seed, "validation").permutation(len(target))
        cut = max(1, round(float(validation) * len(target)))
        if cut >= len(target):
            raise InputError(f"found {len(target)} rows, of which {cut} are set aside; expected some to train on")
        chosen = torch.from_numpy(np.sort(order[:cut]))
        held = tuple(one[chosen] for one in inputs), target[chosen]
        rows = torch.from_numpy(np.sort(order[cut:]))
    rng, size = stream(seed, "batches"), min(batch, len(rows))
    order_left: list[Tensor] = []

    def shuffled(i: int) -> tuple[Any, Tensor]:
        if not order_left:
            mixed = rows[torch.from_numpy(rng.permutation(len(rows)))]
            order_left.extend(mixed[j : j + size] for j in range(0, len(rows) - size + 1, size))
            order_left.reverse()
        chosen = order_left.pop()
        return tuple(one[chosen] for one in inputs), target[chosen]

    return shuffled, held


def _tensors(data: tuple[Any, Any], device: str) -> tuple[tuple[Tensor, ...], Tensor]:
    inputs, target = data
    made = tuple(_tensor(one, device) for one in (inputs if isinstance(inputs, tuple | list) else (inputs,)))
    wanted = _tensor(target, device)
    if {len(one) for one in made} != {len(wanted)} or not len(wanted):
        rows = ", ".join(str(len(one)) for one in made)
        raise InputError(f"found {rows} rows and {len(wanted)} targets; expected equally many, and at least one")
    return made, wanted


def _tensor(value: Any, device: str) -> Tensor:
    if isinstance(value, Tensor):
        return value.to(device)
    array = np.asarray(value)
    if array.dtype.kind == "f":
        array = array.astype(np.float32, copy=False)
        if not np.isfinite(array).all():
            raise InputError("found a number that is not finite in the training data; expected finite ones")
    # A view of read-only memory would be shared with the caller.
    return torch.from_numpy(np.array(array)).to(device)


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _table(rows: Sequence[tuple[int, float, float, float]]) -> pl.DataFrame:
    import polars as pl

    columns = {"step": pl.Int64, "train_loss": pl.Float64, "validation_loss": pl.Float64, "lr": pl.Float64}
    return pl.DataFrame(list(rows), schema=columns, orient="row")
