"""The work of the arena: transformers and ResNets cut into layers, and batches of sequences of different lengths.

Seconds come from the operators of `armillary.llm` (modelled, calibrated for A100, H100 and H200), shapes from config.json files and, for
ResNet, from its published architecture.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown
from armillary.llm import Fabric, Model, Plan, TrainState, layer_costs
from armillary.llm.cost.counts import local_params, local_shape
from armillary.llm.cost.device import Chip
from armillary.llm.cost.operators import collective_seconds, element_seconds, gemm_seconds
from armillary.llm.cost.plan import RECOMPUTE
from armillary.llm.model.shapes import Layer, Tensor

from .chunks.work import SequenceWork, TokenCosts
from .planning.layers import LayeredWork, Layers
from .simulation.schedule import IntArray
from .simulation.simulator import FloatArray, Links

#: The share of a device's memory that is usable, and what libraries take of it, as in `armillary.llm.fits`.
USABLE = 0.96
OVERHEAD = 2.0**30
#: The most tokens of a sequence.
MOST_TOKENS = 1 << 24
#: The slowdown of each layer in misfit cases is lognormal with this σ.
MISFIT = 0.1


@dataclass(frozen=True)
class Machine:
    """A device, its links, and whether neighbouring ranks of the pipeline are on different nodes."""

    device: Chip
    fabric: Fabric
    far: bool

    @staticmethod
    def of(cluster: str, per_rank: int, ranks: int) -> Machine:
        """The devices of a cluster preset, `per_rank` of which form one rank of the pipeline."""
        device, fabric = Fabric.of_cluster(cluster)
        return Machine(device, fabric, per_rank * ranks > fabric.node)

    @property
    def links(self) -> Links:
        """The link between neighbouring ranks."""
        return Links(self.fabric.far_s, self.fabric.far_rate) if self.far else Links(self.fabric.near_s, self.fabric.near_rate)

    @property
    def capacity(self) -> float:
        """Usable bytes of a device."""
        return USABLE * self.device.memory


def transformer(
    model: Model, plan: Plan, tokens: int, micros: int, cluster: str, *, halves: bool = False, scored: float = 1.0,
    rng: np.random.Generator | None = None,
) -> LayeredWork:  # fmt: skip
    """A transformer on a cluster: `plan.micro_batch` sequences of `tokens` per micro-batch. `halves` cuts between attention and MLP.

    `scored` is the share of the tokens whose words the loss predicts (BERT predicts the masked ones). The exchange of experts is taken to
    be hidden behind computation, as DeepSeek-V3 reports of its training; tensor-parallel collectives are not hidden. `rng` draws the
    slowdowns of a misfit case.
    """
    machine = Machine.of(cluster, plan.tp * (plan.dp if plan.ep > 1 else 1), plan.pp)
    rows = _Rows(RECOMPUTE)
    chunk = [[(tokens, 0)] * plan.micro_batch]
    count = plan.micro_batch * tokens
    known: dict[tuple[int, str], tuple[Any, ...]] = {}
    _head_row(rows, model, plan, count, machine)
    for at in range(model.layers):
        kind = model.layer(at)
        for part in ("attention", "mlp") if halves else ("layer",):
            key = (id(kind), part)
            if key not in known:
                known[key] = _layer_row(model, kind, plan, chunk, machine, part)
            rows.add(f"{part} {at}" if halves else f"layer {at}", part if halves else kind.mlp, *known[key])
    _tail_row(rows, model, plan, max(1, round(scored * count)), machine)
    layers = rows.layers(2.0 * model.hidden * count / (plan.tp if plan.sequence_parallel else 1))
    return LayeredWork(
        layers, plan.pp, micros, machine.capacity, machine.links, count, overhead=OVERHEAD,
        sync_rate=_sync_rate(plan, machine), device=machine.device.calibration.said(), actual=_misfit(layers, rng),
    )  # fmt: skip


@dataclass
class _Rows:
    """Layers as they are collected, one list per column."""

    options: tuple[str, ...]
    columns: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, name: str, kind: str, forward: float, i: float, w: float, extra: Any, kept: Any, state: float, gradients: float) -> None:
        fields = ("names", "types", "forward", "backward_input", "backward_weight", "extra", "kept", "state", "gradients")
        for key, value in zip(fields, (name, kind, forward, i, w, extra, kept, state, gradients)):
            self.columns.setdefault(key, []).append(value)

    def layers(self, boundary: Any) -> Layers:
        c = self.columns
        n = len(c["names"])
        kept = np.array(c["kept"])
        return Layers(
            tuple(c["names"]), tuple(c["types"]), self.options, np.array(c["forward"]), np.array(c["backward_input"]),
            np.array(c["backward_weight"]), np.array(c["extra"]), kept, np.array(c["state"]),
            np.broadcast_to(np.asarray(boundary, float), (n,)).copy(), np.array(c["gradients"]), kept[:, :1] - kept,
        )  # fmt: skip


def _layer_row(model: Model, kind: Layer, plan: Plan, chunk: Any, machine: Machine, part: Any) -> tuple[Any, ...]:
    found = layer_costs(model, kind, chunk, plan, machine.device, machine.fabric, part=part)
    tp = float(found.collective[0])
    extra = [float(found.recompute[name][0]) + (tp if name == "full" else 0.0) for name in RECOMPUTE]
    kept = [float(found.kept[name][0]) for name in RECOMPUTE]
    chosen = [t for t in kind.tensors if part == "layer" or (_is_mlp(kind, t)) == (part == "mlp")]
    state, gradients = _state(model, plan, chosen)
    forward, i, w = (float(each[0]) for each in (found.forward, found.backward_input, found.backward_weight))
    return forward + tp, i + tp, w, extra, kept, state, gradients


def _is_mlp(kind: Layer, tensor: Tensor) -> bool:
    """Whether a tensor belongs to the second half of a layer; of the norms, those after the first do."""
    if tensor.part == "norm":
        norms = [t for t in kind.tensors if t.part == "norm"]
        return norms.index(tensor) > 0
    return tensor.part in ("mlp", "router")


def _state(model: Model, plan: Plan, tensors: list[Tensor]) -> tuple[float, float]:
    """(bytes of weights, gradients and optimizer, bytes of gradients) on one device."""
    size = TrainState(gradient=plan.gradient_bytes)
    state = gradients = 0.0
    for tensor in tensors:
        count = local_params(model, tensor, plan.tp, plan.ep, plan.expert_tp)
        shards = plan.expert_fsdp if tensor.role.startswith("expert") else plan.fsdp
        state += count * (size.weight + size.gradient + size.optimizer / shards)
        gradients += count * size.gradient * (not tensor.role.startswith("expert"))
    return state, gradients


def _head_row(rows: _Rows, model: Model, plan: Plan, tokens: int, machine: Machine) -> None:
    seconds = element_seconds(machine.device, "embedding", 4.0 * model.hidden * tokens / plan.tp)
    state, gradients = _state(model, plan, [t for t in model.once if t.part == "embedding"])
    none = [0.0] * len(RECOMPUTE)
    rows.add("embedding", "head", float(seconds), 0.0, float(seconds), none, [0.0] * len(RECOMPUTE), state, gradients)


def _tail_row(rows: _Rows, model: Model, plan: Plan, tokens: int, machine: Machine) -> None:
    """The last norm, the projection to the vocabulary and the loss. Its logits are kept in float32, whatever the layers recompute."""
    on = machine.device
    forward = i = w = 0.0
    wide = 0
    for tensor in model.once:
        if tensor.part == "head" and tensor.matmul:
            _, k, n = local_shape(model, tensor, plan.tp)
            forward += float(gemm_seconds(on, tokens, n, k))
            i += float(gemm_seconds(on, tokens, k, n))
            w += float(gemm_seconds(on, k, n, tokens))
            wide += n if tensor.role == "head" else 0
    loss = float(element_seconds(on, "softmax", 12.0 * wide * tokens))
    last = [t for t in model.once if t.part != "embedding"]
    copy = [t for t in model.once if t.part == "embedding" and t.split == "vocabulary"] if model.tied else []
    state, gradients = _state(model, plan, last + copy)
    kept = tokens * (4.0 * model.hidden / (plan.tp if plan.sequence_parallel else 1) + 4.0 * wide)
    rows.add("loss", "tail", forward + loss, i + loss, w, [0.0] * len(RECOMPUTE), [kept] * len(RECOMPUTE), state, gradients)


def _sync_rate(plan: Plan, machine: Machine) -> float:
    """Seconds of data parallelism per byte of gradients: a reduce-scatter, and an all-gather of half as many bytes of new weights."""
    if plan.dp < 2:
        return 0.0
    size = 1e9
    seconds = collective_seconds(machine.fabric, "reduce-scatter", size, plan.dp, far=True)
    seconds += collective_seconds(machine.fabric, "all-gather", size / 2, plan.dp, far=True)
    return float(seconds) / size


def _misfit(layers: Layers, rng: np.random.Generator | None) -> Layers | None:
    return None if rng is None else layers.slowed(np.exp(rng.normal(0.0, MISFIT, len(layers.types))))


#: Residual blocks of each group (He et al., Deep residual learning for image recognition, 2016), as torchvision has them.
RESNETS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "resnet152": (3, 8, 36, 3)}


def resnet(
    name: str, images: int, micros: int, ranks: int, cluster: str, *, pixels: int = 224, rng: np.random.Generator | None = None
) -> LayeredWork:
    """A ResNet with bottleneck blocks, cut at residual blocks; `images` per micro-batch. Convolutions are priced as matrix products."""
    if name not in RESNETS:
        raise unknown("ResNet", name, RESNETS)
    machine = Machine.of(cluster, 1, ranks)
    rows, boundary = _Rows(("none", "full")), []
    side, wide = pixels // 2, 64
    stem = _Block(machine.device, images)
    stem.convolution(3, 64, 7, side, 2)
    stem.backward_input -= stem.image_gradient  # Nothing asks for the gradient of an image.
    stem.element(64, side, 2)  # the pooling reads the map and writes a quarter of it
    side //= 2
    rows.add("stem", "head", *stem.row(keeps=0.0))
    boundary.append(2.0 * images * 64 * side * side)
    for group, count in enumerate(RESNETS[name]):
        narrow, out = 64 << group, 256 << group
        for at in range(count):
            stride = 2 if group > 0 and at == 0 else 1
            block = _Block(machine.device, images)
            block.convolution(wide, narrow, 1, side)
            side //= stride
            block.convolution(narrow, narrow, 3, side, stride)
            block.convolution(narrow, out, 1, side)
            if at == 0:
                block.convolution(wide, out, 1, side, stride)
            block.element(out, side, 3)
            rows.add(
                f"conv{group + 2}_{at}", f"conv{group + 2}{'a' if at == 0 else ''}", *block.row(2.0 * images * wide * (side * stride) ** 2)
            )
            wide = out
            boundary.append(2.0 * images * out * side * side)
    tail = _Block(machine.device, images)
    tail.product(wide, 1000)
    rows.add("classifier", "tail", *tail.row(keeps=None))
    boundary.append(0.0)
    layers = rows.layers(boundary)
    return LayeredWork(
        layers, ranks, micros, machine.capacity, machine.links, images, "samples", overhead=OVERHEAD,
        device=machine.device.calibration.said(), actual=_misfit(layers, rng),
    )  # fmt: skip


class _Block:
    """The seconds, kept bytes and parameters of some convolutions, each followed by batch normalisation and ReLU."""

    def __init__(self, device: Chip, images: int) -> None:
        self.device, self.images = device, images
        self.forward = self.backward_input = self.backward_weight = self.kept = 0.0
        self.params = 0
        #: Seconds of the gradient of the last convolution's input.
        self.image_gradient = 0.0

    def convolution(self, inputs: int, outputs: int, size: int, side: int, stride: int = 1) -> None:
        """A convolution as an implicit matrix product, then a norm and a ReLU over its output map of side × side."""
        places, inner = self.images * side * side, inputs * size * size
        self.forward += float(gemm_seconds(self.device, places, outputs, inner))
        inner_back = max(1, outputs * size * size // (stride * stride))
        self.image_gradient = float(gemm_seconds(self.device, places * stride * stride, inputs, inner_back))
        self.backward_input += self.image_gradient
        self.backward_weight += float(gemm_seconds(self.device, inner, outputs, places))
        self.params += inputs * outputs * size * size + 2 * outputs
        # Kept are the input of the convolution and that of the norm.
        self.kept += 2.0 * self.images * (inputs * (side * stride) ** 2 + outputs * side * side)
        self.element(outputs, side, 3)

    def element(self, channels: int, side: int, passes: int) -> None:
        """Element-wise work of some passes over a map forward, and half as many again backward."""
        moved = 2.0 * passes * self.images * channels * side * side
        self.forward += float(element_seconds(self.device, "norm", moved))
        self.backward_input += float(element_seconds(self.device, "norm", 1.5 * moved))

    def product(self, inputs: int, outputs: int) -> None:
        """A fully connected layer."""
        self.forward += float(gemm_seconds(self.device, self.images, outputs, inputs))
        self.backward_input += float(gemm_seconds(self.device, self.images, inputs, outputs))
        self.backward_weight += float(gemm_seconds(self.device, inputs, outputs, self.images))
        self.params += inputs * outputs + outputs
        self.kept += 2.0 * self.images * (inputs + 2 * outputs)

    def row(self, keeps: float | None = None) -> tuple[Any, ...]:
        """A row of `_Rows` with the options none and full; `keeps` are the bytes of the input that "full" keeps (None: not recomputed)."""
        state = float(self.params * TrainState().total)
        recomputed = keeps is not None and keeps > 0
        extra = [0.0, self.forward if recomputed else 0.0]
        kept = [self.kept, keeps if recomputed and keeps is not None else self.kept]
        return self.forward, self.backward_input, self.backward_weight, extra, kept, state, 4.0 * self.params


#: Lengths of sequences: shares, medians and σ of a lognormal body, and share, least length and exponent of a Pareto tail. They are
#: fitted to the published skew of code and web corpora (most sequences below 8k tokens, few per cent above 32k); the fit is ours.
CORPORA: Mapping[str, tuple[float, float, float, float, float]] = {
    "github": (1300.0, 1.2, 0.08, 8192.0, 1.1),
    "web": (900.0, 1.0, 0.02, 8192.0, 1.4),
    "wiki": (600.0, 0.9, 0.0, 8192.0, 1.0),
}


def draw_lengths(corpus: str, tokens: int, longest: int, rng: np.random.Generator) -> IntArray:
    """Lengths of sequences until they have `tokens` tokens together, clipped at `longest`."""
    if corpus not in CORPORA:
        raise unknown("corpus", corpus, CORPORA)
    median, sigma, share, least, alpha = CORPORA[corpus]
    most = max(16, tokens // 64)
    body = np.exp(rng.normal(math.log(median), sigma, most))
    tail = least * rng.random(most) ** (-1.0 / alpha)
    length = np.clip(np.where(rng.random(most) < share, tail, body), 16, longest).astype(np.int64)
    stop = int(np.searchsorted(np.cumsum(length), tokens)) + 1
    return length[:stop]


def check_lengths(lengths: Any, longest: int, where: str | None = None) -> IntArray:
    """Lengths as whole numbers from 1 to the longest that the model takes."""
    found = np.asarray(lengths)
    if found.ndim != 1 or len(found) == 0:
        raise InputError("found no lengths; expected at least one sequence", where=where)
    if not np.issubdtype(found.dtype, np.integer):
        raise InputError("lengths: expected whole numbers of tokens", where=where)
    wrong = np.flatnonzero((found < 1) | (found > min(longest, MOST_TOKENS)))
    if len(wrong):
        at = int(wrong[0])
        raise InputError(f"sequence {at}: found {found[at]} tokens; expected 1 to {min(longest, MOST_TOKENS):,}", where=where)
    return found.astype(np.int64)


def sequences(
    model: Model, plan: Plan, lengths: IntArray, longest: int, cluster: str, *, rng: np.random.Generator | None = None
) -> SequenceWork:
    """A batch of sequences for a transformer on a cluster; `plan` gives pp and tp."""
    plan.check(model)
    machine = Machine.of(cluster, plan.tp, plan.pp)
    rows = _Rows(RECOMPUTE)
    count = 4096
    _head_row(rows, model, plan, count, machine)
    _tail_row(rows, model, plan, count, machine)
    c = rows.columns
    state, _ = _state(model, plan, list(model.layer(0).tensors))
    tail = tuple(c[name][1] / count for name in ("forward", "backward_input", "backward_weight"))
    costs = TokenCosts.of_model(
        model, plan, machine.device, machine.fabric, head_state=c["state"][0], tail_state=c["state"][1], state=state,
        tail=(tail[0], tail[1], tail[2]), tail_kept=c["kept"][1][0] / count,
    )  # fmt: skip
    slowdown = None if rng is None else np.exp(rng.normal(0.0, MISFIT, model.layers))
    return SequenceWork(
        check_lengths(lengths, longest), costs, plan.pp, machine.capacity, longest, machine.links, OVERHEAD,
        machine.device.calibration.said(), slowdown, Ulysses(model, machine.device, machine.fabric, plan.pp * plan.tp),
    )  # fmt: skip


@dataclass(frozen=True)
class Ulysses:
    """The same devices without a pipeline: every group of `degree` of them shares sequences by tokens, and attention by heads."""

    model: Model
    device: Chip
    fabric: Fabric
    devices: int

    def degrees(self) -> list[int]:
        """Degrees that divide the devices and the heads."""
        most = math.gcd(self.devices, self.model.heads)
        return [d for d in range(1, most + 1) if self.devices % d == 0 and self.model.heads % d == 0]

    def costs(self, chunks: Any, degree: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
        """(forward, backward, bytes kept without and with recomputation, bytes exchanged) of the whole model for every chunk on a device.

        Each layer exchanges queries, keys, values and outputs by all-to-all, forward and backward, and gathers its weights, which hides
        behind computation as far as that lasts.
        """
        model, plain = self.model, Plan()
        kind = model.layer(0)
        tokens = np.array([chunk.tokens for chunk in chunks], float)
        here = [[(max(1, -(-chunk.tokens // degree)), 0)] for chunk in chunks]
        own = layer_costs(model, kind, here, plain, self.device, self.fabric)
        whole = layer_costs(model, kind, [chunk.segments for chunk in chunks], plain, self.device, self.fabric)
        core = whole.recompute["selective"] / degree
        forward = own.forward - own.recompute["selective"] + core
        backward = own.backward_input - 2.5 * own.recompute["selective"] + 2.5 * core + own.backward_weight
        wide = 2.0 * (2 * model.heads + 2 * model.kv_heads) * model.head_dim
        sent = tokens / degree * wide
        far = degree > self.fabric.node
        exchange = 2 * np.asarray(collective_seconds(self.fabric, "all-to-all", sent / 2, degree, far=far), float)
        weights = 2.0 * sum(t.params for t in kind.tensors)
        gather = float(collective_seconds(self.fabric, "all-gather", weights, self.devices, far=self.devices > self.fabric.node))
        reduce = 2 * gather  # Gradients travel in float32.
        layers = model.layers
        vocabulary = sum(t.multiplied for t in model.once if t.part == "head")
        head = 2.0 * vocabulary * tokens / degree / (self.device.calibration.eta_c * self.device.peak("bf16"))
        forward_s = layers * (np.maximum(forward, gather) + exchange) + head
        backward_s = layers * (np.maximum(backward, gather + reduce) + exchange) + 2 * head
        share = tokens / degree
        none, full = (layers * share * float(own.kept[name][0]) / own.tokens[0] for name in ("none", "full"))
        return forward_s, backward_s, none, full, 2.0 * layers * sent * degree * (degree > 1)

    def static(self) -> float:
        """Bytes per device: the sharded state, and two layers' gathered weights."""
        state = TrainState().total * self.model.params() / self.devices
        return state + 2 * 2.0 * sum(t.params for t in self.model.layer(0).tensors)


__all__ = ["CORPORA", "Machine", "Ulysses", "check_lengths", "draw_lengths", "resnet", "sequences", "transformer"]
