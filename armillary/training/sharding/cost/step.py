"""Seconds of a training step and bytes of state per GPU under one sharding, modelled.

Each GPU has a compute lane and a communication lane, both in order. A group computes when its weights are gathered (and copied out, where
they are not views); the next group is gathered meanwhile. In the backward pass gradients are copied where they are not views, and are
reduced while the next group computes; of the memory for gradients there are two, so that a group waits for the reduction before the last.
Compute comes from `armillary.llm` with full recomputation, collectives move padded buffers in bfloat16, and copies and the optimizer's
update run at the device's memory bandwidth. At the end cut blocks exchange their scales.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from armillary.llm import Batch, Chip, Fabric, Plan, TrainState, layer_costs
from armillary.llm.cost.operators import collective_seconds
from armillary.llm.cost.training_step import train

from ..layouts.bucket import Bucket, Flat
from ..layouts.sharding import Group, Sharding
from ..ragged.granularity import Weight
from ..workload import Planned
from .memory import peak_buffers

#: Bytes of a weight and of a gradient on the wire.
WIDTH = 2
#: Elements in 128 bytes of bfloat16, the alignment of a shard.
ALIGN = 64
#: Bytes that an update moves per element: gradient read, master weight and both moments read and written, weight written.
MOVED = {"adamw": 30.0, "adam8bit": 18.0}
#: Bytes of both moments per element of a matrix, and per block for its two scales.
MOMENTS = {"adamw": 8.0, "adam8bit": 2.0}
SCALES = 8


@dataclass(frozen=True)
class Modelled:
    """A step and the state of one GPU: seconds and bytes, and what they consist of."""

    step_s: float
    state_bytes: float
    compute_s: float
    exposed_s: float
    copy_s: float
    update_s: float
    buffer_bytes: int
    padding: float
    cut_blocks: int
    #: (lane, name, start, seconds) of everything that happened.
    events: tuple[tuple[str, str, float, float], ...] = ()


def modelled(sharding: Sharding, work: Planned) -> Modelled:
    """A step of this work under this sharding."""
    chip, fabric = work.machine
    groups = sharding.groups(work.modules, work.n, ALIGN)
    seconds = _compute(work, chip)
    lanes = _Lanes(sharding, fabric, work.n, chip)
    at, passes = 0, []
    for group in groups:
        inside = seconds[at : at + group.modules]
        at += group.modules
        passes.append((group, sum(f for f, _ in inside), sum(b for _, b in inside)))
    for i, (group, forward, _) in enumerate(passes):
        lanes.run(group, forward, ahead=passes[i + 1][0] if i + 1 < len(passes) else None, name=f"forward {i}", keep=i + 1 == len(passes))
    for i in reversed(range(len(passes))):
        group, _, backward = passes[i]
        lanes.run(group, backward, ahead=passes[i - 1][0] if i else None, name=f"backward {i}", reduces=True)
    buckets = [bucket for group in groups for bucket in group.buckets]
    cut = sum(bucket.cut_blocks() for bucket in buckets)
    update = sum(bucket.shard for bucket in buckets) * MOVED[work.optimizer] / (chip.calibration.eta_m * chip.bandwidth)
    if work.optimizer == "adam8bit" and cut:
        update += float(collective_seconds(fabric, "all-reduce", float(cut * SCALES), work.n, far=work.n > fabric.node))
    total = lanes.end() + update
    compute = sum(f + b for _, f, b in passes)
    real = sum(bucket.elements for bucket in buckets)
    buffers = peak_buffers(sharding, groups, WIDTH)
    return Modelled(
        total, _state(buckets, work) + buffers, compute, total - update - compute - lanes.copies, lanes.copies, update, buffers,
        sum(bucket.padded for bucket in buckets) / real - 1, cut, tuple(lanes.events),
    )  # fmt: skip


def _state(buckets: Sequence[Bucket], work: Planned) -> float:
    """Bytes of weights, gradients and optimizer state of the shards on one GPU."""
    each = TrainState()
    total = 0.0
    for bucket in buckets:
        matrices = sum(w.size for w in bucket.weights if w.grain > 1)
        share = matrices / bucket.elements if work.optimizer == "adam8bit" else 0.0
        moments = MOMENTS["adamw"] * (1 - share) + MOMENTS["adam8bit"] * share
        scales = sum(SCALES * _blocks(w) for w in bucket.weights if w.grain > 1) if work.optimizer == "adam8bit" else 0
        whole = bucket.padded // bucket.shard
        total += bucket.shard * (each.weight + each.gradient + each.master + moments) + scales / whole
    return total


def _blocks(weight: Weight) -> int:
    high, wide = weight.block_shape
    rows = weight.size // weight.columns
    return -(-rows // high) * -(-weight.columns // wide)


class _Lanes:
    """The two lanes of a GPU and what waits for what."""

    def __init__(self, sharding: Sharding, fabric: Fabric, n: int, chip: Chip) -> None:
        self._sharding, self._fabric, self._n = sharding, fabric, n
        self._rate = chip.calibration.eta_m * chip.bandwidth
        self._compute = self._comm = 0.0
        self._arrived: dict[int, float] = {}
        self._reduced: list[float] = []
        #: Seconds of copies so far.
        self.copies = 0.0
        self.events: list[tuple[str, str, float, float]] = []

    def run(self, group: Group, seconds: float, *, ahead: Group | None, name: str, reduces: bool = False, keep: bool = False) -> None:
        """One pass of a group; in the backward pass (`reduces`) its gradients are reduced afterwards."""
        self._gather(group, self._compute)
        start = max(self._compute, self._arrived[id(group)])
        if self._sharding.prefetches and ahead is not None:
            self._gather(ahead, start)
        if not self._sharding.has_views and not self._sharding.replicated:
            start = self._copy(start, sum(_gathered_copies(b) for b in group.buckets), f"copy {name}")
        if reduces and len(self._reduced) >= 2 and not self._sharding.replicated:
            start = max(start, self._reduced[-2])
        self.events.append(("compute", name, start, seconds))
        self._compute = start + seconds
        if not keep:
            self._arrived.pop(id(group), None)
        if reduces:
            if not self._sharding.has_gradient_views:
                self._compute = self._copy(self._compute, sum(_gradient_copies(b) for b in group.buckets), f"copy gradients of {name}")
            kind = "all-reduce" if self._sharding.replicated else "reduce-scatter"
            self._reduced.append(self._collective(kind, group, self._compute, f"{kind} {name}"))

    def end(self) -> float:
        """When everything is done."""
        return max(self._compute, self._comm)

    def _gather(self, group: Group, at: float) -> None:
        if id(group) in self._arrived:
            return
        if self._sharding.replicated:
            self._arrived[id(group)] = 0.0
            return
        copied = 0.0 if self._sharding.has_views else sum(2.0 * WIDTH * b.shard for b in group.buckets) / self._rate
        self._arrived[id(group)] = self._collective("all-gather", group, at + copied, "gather")

    def _collective(self, kind: str, group: Group, at: float, name: str) -> float:
        start = max(at, self._comm)
        far = self._n > self._fabric.node
        seconds = sum(float(collective_seconds(self._fabric, kind, float(WIDTH * b.padded), self._n, far=far)) for b in group.buckets)
        self.events.append(("communication", name, start, seconds))
        self._comm = start + seconds
        return self._comm

    def _copy(self, start: float, count: float, name: str) -> float:
        seconds = 2.0 * WIDTH * count / self._rate  # Every byte is read and written.
        self.copies += seconds
        self.events.append(("compute", name, start, seconds))
        return start + seconds


def _gathered_copies(bucket: Bucket) -> int:
    """Elements that are copied out of a gathered buffer; weights that are not divided along the first dimension are copied twice."""
    return bucket.elements + _strided(bucket)


def _gradient_copies(bucket: Bucket) -> int:
    return bucket.elements + _strided(bucket)


def _strided(bucket: Bucket) -> int:
    dims = () if isinstance(bucket, Flat) else getattr(bucket, "dims", ())
    return sum(w.size for w, dim in zip(bucket.weights, dims) if dim not in (0, None))


def _compute(work: Planned, chip: Chip) -> list[tuple[float, float]]:
    """(forward, backward with recomputation) seconds of each module."""
    if work.model is None:
        rate = chip.calibration.eta_c * chip.peak("bf16")
        each = [2.0 * work.tokens * sum(w.size for w in module if w.matrix) / rate for module in work.modules]
        return [(f, 3.0 * f) for f in each]
    model, plan = work.model, Plan(recompute="full")
    found: list[tuple[float, float]] = []
    for kind, count in model.kinds:
        cost = layer_costs(model, kind, [[(work.tokens, 0)]], plan, chip)
        again = float(cost.recompute["full"][0])
        one = (float(cost.forward[0]), float(cost.backward_input[0] + cost.backward_weight[0]) + again)
        found += [one] * count
    whole = train(model, plan, Batch(1, work.tokens), chip)[0]
    # What the layers do not account for is the head, since looking a token up takes next to nothing.
    forward = max(0.0, whole.forward - sum(f for f, _ in found))
    backward = max(0.0, whole.backward_input + whole.backward_weight + whole.recompute - sum(b for _, b in found))
    return [(0.0, 0.0), *found, (forward, backward)]
