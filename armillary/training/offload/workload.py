"""What one training iteration touches, and when: the modules in their order, the tensors of each, and how long each computes.

The order comes from a model's shapes (forward, then the same modules backwards) or from a recorded trace. Seconds of modules come from
`armillary.llm` or from the trace. Parameters are 16-bit; a module's gradients have the size of its parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

from .simulation.machine import STATE_BYTES, WORKSPACE, Machine

if TYPE_CHECKING:
    from armillary.llm import Model
    from armillary.llm.model.shapes import Tensor

FORWARD, BACKWARD = 0, 1
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
#: Bounds for what a file may describe.
MOST_TENSORS, MOST_OPS, MOST_ROWS, MOST_ACCESSES = 50_000, 200_000, 200_000, 10_000_000
#: DeepSpeed keeps tensors of fewer elements on the GPU for good.
PERSISTENT = 100_000
CLASSES = 2


@dataclass(frozen=True)
class OffloadWork:
    """One iteration of training, repeated `iterations` times; the first one is a warm-up that no metric counts.

    Tensor t has `size[t]` bytes and `elements[t]` numbers. Operation k is a module in one direction: its tensors are
    `used[first[k]:first[k+1]]`, it computes for `seconds[k]`, belongs to layer `layer[k]`, and while it runs, activations take
    `live[k]` bytes. `order` [iterations, operations] is the order in which operations run. `update_s[t]` are the seconds in which the
    host updates tensor t. `planned` are the seconds that a plan may know, where they differ from what happens.
    """

    name: str
    machine: Machine
    size: IntArray
    elements: IntArray
    names: tuple[str, ...]
    first: IntArray
    used: IntArray
    phase: IntArray
    layer: IntArray
    seconds: FloatArray
    live: FloatArray
    update_s: FloatArray
    order: IntArray
    planned: FloatArray
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(
        name: str, machine: Machine, size: Any, ops: Sequence[tuple[int, int, Sequence[int], float]], *, elements: Any = None,
        names: Sequence[str] = (), live: Any = None, update_s: Any = None, iterations: int = 4, notes: Sequence[str] = (),
        where: str | None = None,
    ) -> OffloadWork:  # fmt: skip
        """The work after its checks; `ops` are (phase, layer, tensors, seconds) in the order in which they run."""
        sizes = np.array(size, np.int64).reshape(-1)
        if not 0 < len(sizes) <= MOST_TENSORS or not 0 < len(ops) <= MOST_OPS:
            found = f"{len(sizes)} tensors in {len(ops)} operations"
            raise InputError(f"{found}; expected 1 to {MOST_TENSORS:,} tensors in 1 to {MOST_OPS:,} operations", where=where)
        if sizes.min() <= 0 or sizes.max() > 1 << 44:
            raise InputError(f"a tensor of {sizes.min()} bytes; expected 1 to 2^44", where=where)
        counts = np.array([len(set(op[2])) for op in ops], np.int64)
        used = np.array([t for op in ops for t in dict.fromkeys(op[2])], np.int64)
        if not len(used) or len(used) > MOST_ROWS or used.min() < 0 or used.max() >= len(sizes):
            raise InputError("an operation uses a tensor that does not exist, or there are too many", where=where)
        seconds = np.array([op[3] for op in ops], np.float64)
        if not (np.isfinite(seconds).all() and seconds.min() >= 0):
            raise InputError("expected operations of 0 seconds or more", where=where)
        if any(op[0] not in (FORWARD, BACKWARD) for op in ops):
            raise InputError("expected operations of the forward or the backward pass", where=where)
        count = np.array(elements, np.int64) if elements is not None else np.maximum(sizes // 2, 1)
        if iterations < 2 or iterations * len(used) > MOST_ACCESSES:
            most = max(2, MOST_ACCESSES // len(used))
            raise InputError(f"{iterations} iterations of {len(used)} accesses; expected 2 to {most:,} iterations", where=where)
        return OffloadWork(
            name, machine, sizes, count, tuple(names) or tuple(map(str, range(len(sizes)))), np.concatenate([[0], np.cumsum(counts)]), used,
            np.array([op[0] for op in ops], np.int64), np.array([op[1] for op in ops], np.int64), seconds,
            np.array(live, np.float64) if live is not None else np.zeros(len(ops)),
            np.array(update_s, np.float64) if update_s is not None else count / machine.adam,
            np.tile(np.arange(len(ops), dtype=np.int64), (iterations, 1)), seconds, tuple(notes),
        )  # fmt: skip

    @property
    def iterations(self) -> int:
        """The number of iterations, the warm-up included."""
        return len(self.order)

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return int(self.elements.sum())

    @property
    def total_bytes(self) -> int:
        """Bytes of all parameters."""
        return int(self.size.sum())

    @property
    def state_bytes(self) -> float:
        """Bytes of Adam's state of all parameters."""
        return float(STATE_BYTES * self.elements.sum())

    @cached_property
    def capacity(self) -> float:
        """Bytes of the GPU that parameters may take: its memory without the workspace and the largest sum of activations."""
        return self.machine.gpu_bytes - WORKSPACE - float(self.live.max())

    @cached_property
    def widest(self) -> int:
        """Bytes of the operation that needs the most parameters at once."""
        return int(np.add.reduceat(self.size[self.used], self.first[:-1]).max())

    @cached_property
    def cyclic(self) -> bool:
        """Whether every iteration runs in the same order."""
        return bool((self.order == self.order[0]).all())

    def rows(self, iteration: int) -> tuple[IntArray, IntArray]:
        """The accesses of one iteration in order: (tensor of each, position of its operation in the iteration)."""
        order = self.order[iteration]
        counts = (self.first[1:] - self.first[:-1])[order]
        starts = np.repeat(self.first[order], counts)
        inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.used[starts + inside], np.repeat(np.arange(len(order)), counts)

    def with_machine(self, machine: Machine) -> OffloadWork:
        """The same work on another machine of the same speed."""
        return replace(self, machine=machine)

    def with_iterations(self, iterations: int) -> OffloadWork:
        """The same work with another number of iterations, in its first order."""
        return replace(self, order=np.tile(self.order[0], (iterations, 1)))

    def misfit(self, rng: np.random.Generator, sigma: float = 0.1) -> OffloadWork:
        """The same work whose layers take longer or shorter than a plan may know, by lognormal factors."""
        layers = np.unique(self.layer)
        factor = np.exp(rng.normal(0.0, sigma, len(layers)))
        return replace(self, seconds=self.seconds * factor[np.searchsorted(layers, self.layer)])

    def shuffled(self, rng: np.random.Generator) -> OffloadWork:
        """The same work whose layers run in another order in every iteration, backwards in the opposite order."""
        forward = np.flatnonzero(self.phase == FORWARD)
        layers = list(dict.fromkeys(self.layer[forward].tolist()))
        order = []
        for _ in range(self.iterations):
            drawn = [layers[i] for i in rng.permutation(len(layers))]
            ahead = [k for layer in drawn for k in forward if self.layer[k] == layer]
            back = [k for layer in drawn[::-1] for k in np.flatnonzero((self.phase == BACKWARD) & (self.layer == layer))]
            order.append(ahead + back)
        return replace(self, order=np.array(order, np.int64))


def model_work(
    model: Model, machine: Machine, *, sequences: int = 16, tokens: int = 128, iterations: int = 4, recompute: str = "none",
    task: str = "classify",
) -> OffloadWork:  # fmt: skip
    """Fine-tuning of a model on `sequences` sequences of `tokens` tokens per iteration.

    `task` is "classify" (two classes, as the published runs on GLUE) or "generate" (the language model's own head). Each matrix, each
    norm and each embedding is a module of its own, which is touched once forward and once backward. A layer's seconds are spread over
    its matrices by their size.
    """
    from armillary.llm import Plan, chip, layer_costs
    from armillary.llm.cost.operators import gemm_seconds

    if task not in ("classify", "generate"):
        raise InputError(f'task: found "{task}"; expected classify or generate')
    if not 1 <= sequences * tokens <= 1 << 24:
        raise InputError(f"a batch of {sequences} × {tokens} tokens; expected 1 to 2^24")
    if recompute not in ("none", "selective", "mlp", "full"):
        raise InputError(f'recompute: found "{recompute}"; expected none, selective, mlp or full')
    parts = _Parts()
    before, after, tied = _outside(model, task)
    for tensor in before:
        parts.add(tensor, -1)
    on = chip(machine.device)
    cost = {id(kind): layer_costs(model, kind, [[(tokens, 0)] * sequences], Plan(), on) for kind, _ in model.kinds}
    number, kept, ramp = 0, 0.0, [0.0] * len(parts.modules)
    for kind, count in model.kinds:
        one = cost[id(kind)]
        back = float(one.backward_input[0] + one.backward_weight[0] + one.recompute[recompute][0])
        modules = _in_order(kind.tensors)
        weights = np.array([max(t.multiplied, 0) for t in modules], float)
        share = weights / weights.sum()
        for _ in range(count):
            for tensor, part in zip(modules, share, strict=True):
                parts.add(tensor, number, float(one.forward[0]) * part, back * part)
                kept += float(one.kept[recompute][0]) * part
                ramp.append(kept)
            number += 1
    head = float(gemm_seconds(on, sequences * tokens, model.vocab, model.hidden)) if task == "generate" else 0.0
    for tensor in after:
        busy = head if tensor.part == "head" and tensor.matmul else 0.0
        parts.add(tensor, number, busy, 2 * busy)
        ramp.append(kept)
    ops = [(FORWARD, layer, tensors, f) for tensors, layer, f, _ in parts.modules]
    if tied is not None:  # The head multiplies with the embedding's own weights.
        ops.append((FORWARD, number, [tied], head))
        ramp.append(kept)
    backs = [(BACKWARD, layer, tensors, b) for tensors, layer, _, b in parts.modules]
    if tied is not None:
        backs.append((BACKWARD, number, [tied], 2 * head))
    full = max(float(one.kept["none"][0]) for one in cost.values()) if recompute != "none" else 0.0
    live = np.array(ramp) + full
    return OffloadWork.of(
        model.name, machine, 2 * np.array(parts.elements), ops + backs[::-1], elements=parts.elements, names=parts.names,
        live=np.concatenate([live, live[::-1]]), iterations=iterations,
        notes=() if on.calibration.calibrated else (f"{on.name} is not calibrated",),
    )  # fmt: skip


class _Parts:
    """Tensors and modules, as they are added."""

    def __init__(self) -> None:
        self.elements: list[int] = []
        self.names: list[str] = []
        #: (tensors, layer, forward seconds, backward seconds)
        self.modules: list[tuple[list[int], int, float, float]] = []

    def add(self, tensor: Tensor, layer: int, forward: float = 0.0, backward: float = 0.0) -> None:
        made = []
        for what, count in (("weight", tensor.copies * tensor.inputs * tensor.outputs), ("bias", tensor.copies * tensor.bias)):
            if count:
                made.append(len(self.elements))
                self.elements.append(count)
                self.names.append(f"layers.{layer}.{tensor.name}.{what}" if layer >= 0 else f"{tensor.name}.{what}")
        self.modules.append((made, layer, forward, backward))


def _in_order(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors of a layer in the order in which they are used: a norm, attention, a norm, the MLP, further norms."""
    norms = [t for t in tensors if t.part == "norm"]
    attention = [t for t in tensors if t.part == "attention"]
    rest = [t for t in tensors if t.part not in ("norm", "attention")]
    return [*norms[:1], *attention, *norms[1:2], *rest, *norms[2:]]


def _outside(model: Model, task: str) -> tuple[list[Tensor], list[Tensor], int | None]:
    """Tensors before and after the layers, and the tensor that a tied head uses again."""
    from armillary.llm.model.shapes import Tensor

    before = [t for t in model.once if t.part == "embedding" or "embeddings" in t.name]
    after = [t for t in model.once if t not in before and t.part != "head"]
    if task == "classify":
        return before, [*after, Tensor("score", "head", "head", model.hidden, CLASSES)], None
    heads = [t for t in model.once if t.part == "head"]
    tied = 0 if any(t.tied and t.matmul for t in heads) else None
    return before, [*after, *(t for t in heads if not t.tied)], tied


def equal_work(machine: Machine, count: int, size: int, seconds: float, *, iterations: int = 4) -> OffloadWork:
    """`count` modules with one tensor of `size` bytes each, forward and backward: the simplest work, for closed forms."""
    ahead = [(FORWARD, i, [i], seconds) for i in range(count)]
    return OffloadWork.of(
        "equal", machine, [size] * count, ahead + [(BACKWARD, i, [i], 2 * seconds) for i in reversed(range(count))], iterations=iterations,
        elements=[max(1, math.ceil(size / 2))] * count,
    )  # fmt: skip
