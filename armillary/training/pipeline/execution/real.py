"""Schedules on real processes: torch's own pipeline runtime over Gloo, with the schedule that we made.

`run_real` steps stages that sleep for their seconds, which tells whether the simulator's clock is right. `train_real` trains the
tiny transformer of `armillary.llm`, which tells whether a schedule computes the right gradients; `train_alone` does the same in this
process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary import extras
from armillary.errors import InputError

from ..planning.layers import Layers
from ..simulation.schedule import B, Schedule
from ..simulation.simulator import Costs, FloatArray

if TYPE_CHECKING:
    from ..simulation.schedule import IntArray

#: Seconds of each pass of a sleeping layer; what the processes do besides takes about a thousandth of that.
LAYER_S = 0.02
MOST_RANKS = 16
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class RealRun:
    """Wall seconds of a step: the median over the steps of the slowest rank."""

    seconds: float
    steps: tuple[float, ...]


@dataclass(frozen=True)
class RealTraining:
    """Losses of each step, and every parameter's gradient in the first step, by stage and name."""

    losses: tuple[float, ...]
    gradients: dict[str, FloatArray]


def run_real(schedule: Schedule, seconds: Sequence[npt.ArrayLike], steps: int = 3) -> RealRun:
    """Steps sleeping stages through torch's runtime, one process per rank; `seconds` are (forward, gradient of the input, of the weights).

    Each has one entry per stage.
    """
    table = np.array([np.asarray(each, float) for each in seconds])
    if table.shape != (3, schedule.stages) or not np.isfinite(table).all() or (table < 0).any():
        raise InputError(f"seconds: found shape {table.shape}; expected three rows of {schedule.stages} values of at least 0")
    answers = _started("sleeping", schedule, (schedule.micros, schedule.stages, table, steps))
    slowest = tuple(float(max(each)) for each in zip(*answers))
    return RealRun(float(np.median(slowest)), slowest)


def train_real(schedule: Schedule, steps: int = 1, rate: float = 0.1, seed: int = 0) -> RealTraining:
    """Trains the tiny transformer in float64, one layer per stage, through torch's runtime with plain gradient descent.

    The losses are means over the tokens of a step's batch, in nats.
    """
    answers = _started("training", schedule, (schedule.micros, schedule.stages, steps, rate, seed))
    losses: list[float] = next((answer["losses"] for answer in answers if answer["losses"]), [])
    gradients = {name: np.asarray(value) for answer in answers for name, value in answer["gradients"].items()}
    return RealTraining(tuple(losses), gradients)


def train_alone(stages: int, micros: int, steps: int = 1, rate: float = 0.1, seed: int = 0) -> RealTraining:
    """The same training in this process, without a pipeline."""
    torch: Any = extras.need("torch")
    from . import program

    modules, mean = program.parts_of(stages, seed), program.loss_of(1)
    words, wanted = program.batch(micros, seed)
    losses, gradients = [], {}
    for step in range(steps):
        for part in modules:
            part.zero_grad()
        x = words
        for part in modules:
            x = part(x)
        loss = mean(x, wanted)
        loss.backward()
        losses.append(float(loss.detach()))
        for s, part in enumerate(modules):
            for name, parameter in part.named_parameters():
                if step == 0:
                    gradients[f"{s}.{name}"] = parameter.grad.numpy().copy()
                with torch.no_grad():
                    parameter -= rate * parameter.grad
    return RealTraining(tuple(losses), gradients)


def _started(function: str, schedule: Schedule, arguments: tuple[Any, ...]) -> list[Any]:
    from armillary import comm

    extras.need("torch")
    if schedule.ranks > MOST_RANKS:
        raise InputError(f"found {schedule.ranks} ranks; expected at most {MOST_RANKS} processes on this machine")
    if (schedule.replica >= 0).any() or (schedule.previous_slice >= 0).any():
        raise InputError("torch's runtime has one direction and no slices of sequences")
    rows = [",".join(str(each) for each in schedule.actions(rank)) for rank in range(schedule.ranks)]
    name = f"{__package__}.program:{function}"
    return list(comm.run(name, "\n".join(rows), *arguments, ranks=schedule.ranks, backend="gloo", timeout=_TIMEOUT_S).values)


def sleeping_layers(count: int, uneven: float, rng: np.random.Generator) -> Layers:
    """Layers that sleep for 20 ms per pass, each slowed by a lognormal factor."""
    slow = LAYER_S * np.exp(rng.normal(0.0, uneven, count) if uneven > 0 else np.zeros(count))
    table, zero = np.zeros((count, 1)), np.zeros(count)
    return Layers(tuple(f"layer {i}" for i in range(count)), ("body",) * count, ("none",), slow, slow, slow, table, table, zero, zero, zero)


def as_torch_runs(schedule: Schedule, costs: Costs) -> Costs:
    """The costs as torch's runtime spends them: nothing asks for the gradient of the first stage's input.

    So where its backward pass is split, I does nothing and W does both.
    """
    split: IntArray = schedule.kind[(schedule.stage == 0) & (schedule.kind > 0)]
    if len(split) == 0 or (split == B).all():
        return costs
    inward, weight = np.array(costs.backward_input, float), np.array(costs.backward_weight, float)
    weight[0], inward[0] = weight[0] + inward[0], 0.0
    return replace(costs, backward_input=inward, backward_weight=weight)
