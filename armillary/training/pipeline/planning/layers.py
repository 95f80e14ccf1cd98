"""Layers with their costs, their division into stages, and the plan that a technique makes of both.

A layer has seconds for its forward pass and for both gradients, and for every option of recomputation the bytes that it keeps and the
extra seconds of its backward pass. A head (embedding) belongs to the first stage and a tail (loss) to the last; the layers between them
are the body, and every stage has at least one of those.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from armillary.arena import NotForThisCase
from armillary.errors import InputError

from ..simulation.schedule import IntArray, Schedule
from ..simulation.simulator import Costs, FloatArray, Links, Simulated, simulate


@dataclass(frozen=True, eq=False)
class Layers:
    """All layers in order. `extra` and `kept` have one column per option; option 0 recomputes nothing.

    `state` are the bytes that stay on the device for the layer's parameters, `gradients` the bytes that copies exchange, `boundary` the
    bytes of its output, and `workspace` what each option needs while it recomputes the layer (nothing, unless it is given).
    """

    names: tuple[str, ...]
    types: tuple[str, ...]
    options: tuple[str, ...]
    forward: FloatArray
    backward_input: FloatArray
    backward_weight: FloatArray
    extra: FloatArray
    kept: FloatArray
    state: FloatArray
    boundary: FloatArray
    gradients: FloatArray
    workspace: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        n, r = len(self.names), len(self.options)
        if n < 1 or r < 1 or len(self.types) != n:
            raise InputError("expected at least one layer and one option of recomputation, and a type per layer")
        if self.workspace.size == 0:
            object.__setattr__(self, "workspace", np.zeros((n, r)))
        for name, shape in (
            ("workspace", (n, r)), ("forward", (n,)), ("backward_input", (n,)), ("backward_weight", (n,)), ("extra", (n, r)),
            ("kept", (n, r)), ("state", (n,)),
            ("boundary", (n,)), ("gradients", (n,)),
        ):  # fmt: skip
            values = np.asarray(getattr(self, name), np.float64)
            object.__setattr__(self, name, values)
            if values.shape != shape:
                raise InputError(f"{name}: found shape {values.shape}; expected {shape}")
            if not np.isfinite(values).all() or (values < 0).any():
                row = int(np.argwhere(~np.isfinite(values) | (values < 0))[0][0])
                raise InputError(f'layer "{self.names[row]}": {name}: expected finite values of at least 0')
        if self.extra[:, 0].any():
            raise InputError(f'option "{self.options[0]}" comes first and recomputes nothing; expected no extra seconds')
        worse = self.kept[:, 1:] > self.kept[:, :1]
        if worse.any():
            row, option = (int(x) for x in np.argwhere(worse)[0])
            raise InputError(f'layer "{self.names[row]}": option {self.options[option + 1]} keeps more than {self.options[0]}')
        heads, tails = (np.flatnonzero(np.array(self.types) == name) for name in ("head", "tail"))
        if len(heads) > 1 or (len(heads) and heads[0] != 0) or len(tails) > 1 or (len(tails) and tails[0] != n - 1):
            raise InputError("expected at most one head, as the first layer, and at most one tail, as the last")
        if self.body == 0:
            raise InputError("expected at least one layer between head and tail")

    @property
    def first(self) -> int:
        """The row of the first body layer."""
        return int(self.types[0] == "head")

    @property
    def body(self) -> int:
        """The number of body layers."""
        return len(self.types) - self.first - (self.types[-1] == "tail")

    @functools.cached_property
    def backward(self) -> FloatArray:
        """Seconds of both gradients of each layer."""
        return self.backward_input + self.backward_weight

    def rows(self, start: int, stop: int) -> slice:
        """The rows of a stage with the body layers from `start` to before `stop`, head and tail included at the ends."""
        return slice(0 if start == 0 else self.first + start, len(self.types) if stop == self.body else self.first + stop)

    def slowed(self, factors: FloatArray) -> Layers:
        """The same layers with all seconds of each multiplied by its factor."""
        return replace(
            self, forward=self.forward * factors, backward_input=self.backward_input * factors,
            backward_weight=self.backward_weight * factors, extra=self.extra * factors[:, None],
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Division:
    """Body layers `cuts[j]` to `cuts[j + 1]` form stage j, and `choice` is the option of recomputation of every layer."""

    layers: Layers
    cuts: IntArray
    choice: IntArray

    def __post_init__(self) -> None:
        cuts = np.asarray(self.cuts, np.int64)
        object.__setattr__(self, "cuts", cuts)
        if cuts[0] != 0 or cuts[-1] != self.layers.body or (np.diff(cuts) < 1).any():
            raise InputError(f"cuts at {cuts.tolist()} of {self.layers.body} layers; expected at least one layer per stage")

    @staticmethod
    def uniform(layers: Layers, cuts: npt.ArrayLike, option: int = 0) -> Division:
        """The same option for all layers."""
        return Division(layers, np.asarray(cuts, np.int64), np.full(len(layers.types), option))

    @property
    def stages(self) -> int:
        """The number of stages."""
        return len(self.cuts) - 1

    def stage(self, index: int) -> slice:
        """The rows of one stage."""
        return self.layers.rows(int(self.cuts[index]), int(self.cuts[index + 1]))

    def sums(self, values: FloatArray) -> FloatArray:
        """One sum per stage of a value per layer."""
        return np.array([values[self.stage(j)].sum() for j in range(self.stages)])

    def with_layers(self, layers: Layers) -> Division:
        """The same division of layers whose costs are others."""
        return Division(layers, self.cuts, self.choice)

    @functools.cached_property
    def seconds(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """(forward, gradient of the input, gradient of the weights, recomputation) per stage."""
        layers, rows = self.layers, np.arange(len(self.choice))
        each = (layers.forward, layers.backward_input, layers.backward_weight, layers.extra[rows, self.choice])
        return tuple(self.sums(values) for values in each)  # type: ignore[return-value]

    def costs(self, *, copies: int = 1, overhead: float = 0.0, sync_rate: float = 0.0) -> Costs:
        """What the stages cost in the simulator; with two copies the stages stand there twice.

        `sync_rate` are the seconds that data-parallel copies need per byte of gradients.
        """
        layers, rows = self.layers, np.arange(len(self.choice))
        forward, backward_input, backward_weight, again = self.seconds
        kept = layers.kept[rows, self.choice]
        space = layers.workspace[rows, self.choice]
        workspace = np.array([space[self.stage(j)].max() for j in range(self.stages)])
        sent = np.array([layers.boundary[self.stage(j)][-1] for j in range(self.stages)])
        gradients = self.sums(layers.gradients)
        tables = (forward, backward_input, backward_weight, again, self.sums(kept), workspace, sent, self.sums(layers.state), gradients)
        f, i, w, r, k, space, out, static, grads = (np.tile(table, copies) for table in tables)
        return Costs(
            f, i, w, r, kept=k, workspace=space, sent=out, static=static, gradients=grads, sync_s=grads * sync_rate, overhead=overhead
        )


@dataclass(frozen=True, eq=False)
class LayeredWork:
    """Layers to train on `ranks` devices (or groups of them) with `micros` micro-batches per step.

    `capacity` are the bytes of each device, of which `overhead` is always taken. `units` are the tokens or samples of a micro-batch.
    `actual` are the layers as they turn out where that is not what the planners were told.
    """

    layers: Layers
    ranks: int
    micros: int
    capacity: float
    links: Links = Links()  # noqa: RUF009 - frozen
    units: float = 1.0
    unit: str = "tokens"
    overhead: float = 0.0
    sync_rate: float = 0.0
    device: str = ""
    actual: Layers | None = None
    #: A schedule that the user brought, to be run as it is.
    given: Schedule | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.micros < 1:
            raise InputError(f"found {self.micros} micro-batches; expected at least one")
        if self.ranks < 1 or self.ranks > self.layers.body:
            raise InputError(f"found {self.ranks} ranks for {self.layers.body} body layers; expected at least one layer per rank")
        if not self.capacity > 0:
            raise InputError(f"found a capacity of {self.capacity}; expected bytes above 0")
        least = Division.uniform(self.layers, even_cuts(self.layers.body, self.ranks))
        static = least.sums(self.layers.state) + self.overhead
        if static.min() > self.capacity:
            at = int(static.argmin())
            raise InputError(
                f"stage {at} of an even split needs {_gib(static[at])} for its parameters alone, "
                f"{_gib(static[at] - self.capacity)} more than the capacity"
            )

    @property
    def depth(self) -> int:
        """The most chunks per rank."""
        return self.layers.body // self.ranks

    def simulate(self, plan: StagePlan, *, actual: bool = True) -> Simulated:
        """Runs a plan on the layers as they turn out, or as planners know them."""
        layers = self.actual if actual and self.actual is not None else self.layers
        costs = plan.division.with_layers(layers).costs(copies=plan.copies, overhead=self.overhead, sync_rate=self.sync_rate)
        return simulate(plan.schedule, costs, self.links)

    def exposed(self, division: Division) -> float:
        """What promises add to the closed forms: the transfers of one micro-batch on its way there and back, and the first stage's sync."""
        transfers = 2 * (division.stages - 1) * self.links.latency_s
        transfers += 2 * float(sum(self.layers.boundary[division.stage(j)][-1] for j in range(division.stages - 1))) / self.links.rate
        return transfers + float(self.layers.gradients[division.stage(0)].sum()) * self.sync_rate

    def fits(self, found: Simulated) -> bool:
        """Whether a simulated plan stays within the memory of every rank."""
        return bool((found.peak <= self.capacity * (1 + 1e-12)).all())


@dataclass(frozen=True, eq=False)
class StagePlan:
    """What a technique decided: the division of the layers, the schedule, and the seconds that it promises for a step.

    `order` names the schedule's kind, `chunks` is the number of stages per rank, and `copies` is 2 where the model runs in both
    directions. `notes` are facts for the report.
    """

    division: Division
    schedule: Schedule
    predicted: float
    order: str = ""
    chunks: int = 1
    copies: int = 1
    notes: dict[str, object] = field(default_factory=dict)


def even_cuts(body: int, parts: int) -> IntArray:
    """Cuts into parts as equal as possible; the first ones are longer where they do not divide."""
    sizes = [body // parts + (i < body % parts) for i in range(parts)]
    return np.concatenate([[0], np.cumsum(sizes)])


def fastest(work: LayeredWork, candidates: Sequence[StagePlan], what: str) -> tuple[StagePlan, Simulated]:
    """The candidate with the shortest simulated step among those that fit, as planners know the layers.

    Raises `NotForThisCase` with the smallest shortage where none fits.
    """
    best: tuple[StagePlan, Simulated] | None = None
    shortage = np.inf
    for plan in candidates:
        found = work.simulate(plan, actual=False)
        if not work.fits(found):
            shortage = min(shortage, float((found.peak - work.capacity).max()))
        elif best is None or found.makespan < best[1].makespan * (1 - 1e-12):
            best = plan, found
    if best is None:
        lacks = f"every candidate exceeds memory, the best by {_gib(shortage)}" if np.isfinite(shortage) else "it has no candidate"
        raise NotForThisCase(f"{what} does not fit: {lacks}")
    return best


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**27 else f"{size:,.0f} bytes"
