"""Seconds of a transformer's operators on a device: matrix products, attention, element-wise kernels, collectives.

A matrix product follows a wave-quantised roofline. Its output is cut into tiles, the tiles fill the multiprocessors in waves, and a partial
wave costs as much as a full one; the product takes the longer of that time and the memory traffic. The same functions price serving and
training. Everything is modelled, and carries the id and error of the device's calibration.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.llm.cost.collectives import sent_share
from armillary.llm.cost.counts import Segment, kv_share, local_shape, pair_flops, pairs
from armillary.llm.cost.device import Chip, Fabric
from armillary.llm.model.shapes import WIDTH, Layer, Model, Tensor

#: The numbers of parts into which the inner dimension may be split so that few tiles fill the device, and the shortest useful part.
SPLITS = (1, 2, 3, 4, 6, 8)
LEAST_SPLIT = 512


def gemm_seconds(
    device: Chip, m: Any, n: int, k: int, *, dtype: str = "bf16", weight_width: float | None = None, waves: bool = True, copies: Any = 1
) -> Any:
    """Seconds of one kernel that computes `copies` products (m × k) · (k × n); m may be an array.

    max(min over tiles (a, b, e) and splits s of ⌈⌈m/a⌉·⌈n/b⌉·copies·s/SM⌉·SM·a·b·2k/(s·e·η_c·peak) + the partial sums' traffic,
    bytes/(η_m·bandwidth)) + t0. `weight_width` is the size of a weight in bytes where it is narrower than the type of the computation.
    `waves=False` gives the plain roofline, flops/(η_c·peak).
    """
    c, width = device.calibration, WIDTH[dtype]
    rows = np.asarray(m, dtype=np.float64)
    if n < 1 or k < 1 or np.any(rows < 0):
        raise InputError(f"a matrix product of {m} × {k} × {n}; expected sizes of at least 1")
    rate = c.eta_c * device.peak(dtype)
    if waves and device.sms:
        compute = np.full(rows.shape, np.inf)
        for a, b, e in c.tiles:
            tiles, wave = np.ceil(rows / a) * -(-n // b) * copies, device.sms * a * b * 2.0 * k / (e * rate)
            for s in SPLITS:
                if s > 1 and k < s * LEAST_SPLIT:
                    break
                sums = (s > 1) * s * 8.0 * rows * n * copies / (c.eta_m * device.bandwidth)  # fp32 partial sums, written and read
                np.minimum(compute, np.ceil(tiles * s / device.sms) * (wave / s) + sums, out=compute)
    else:
        compute = rows * copies * (2.0 * n * k / rate)
    moved = copies * (width * rows * (k + n) + (weight_width or width) * float(k) * n)
    seconds = np.maximum(compute, moved / (c.eta_m * device.bandwidth)) + c.t0
    seconds = np.where(rows > 0, seconds, 0.0)
    return float(seconds) if seconds.ndim == 0 else seconds


def grouped_gemm_seconds(
    device: Chip, counts: Sequence[int] | npt.NDArray[Any], n: int, k: int, *, dtype: str = "bf16", weight_width: float | None = None,
    waves: bool = True,
) -> float:  # fmt: skip
    """Seconds of one kernel that multiplies each expert's `counts` rows with its own (k × n) matrix.

    The tiles of all experts share the waves; the weights of experts without rows are not read.
    """
    c, width = device.calibration, WIDTH[dtype]
    rows = np.asarray(counts, dtype=np.float64)
    rows = rows[rows > 0]
    if not len(rows):
        return 0.0
    rate = c.eta_c * device.peak(dtype)
    if waves and device.sms:
        compute = min(
            np.ceil((np.ceil(rows / a) * -(-n // b)).sum() / device.sms) * (device.sms * a * b * 2.0 * k / (e * rate))
            for a, b, e in c.tiles
        )
    else:
        compute = rows.sum() * 2.0 * n * k / rate
    moved = width * rows.sum() * (k + n) + len(rows) * (weight_width or width) * float(k) * n
    return float(max(compute, moved / (c.eta_m * device.bandwidth)) + c.t0)


def element_seconds(device: Chip, kernel: str, moved: Any) -> Any:
    """Seconds of an element-wise kernel (norm, rope, act, residual, …) that reads and writes `moved` bytes."""
    c = device.calibration
    byte = np.asarray(moved, dtype=np.float64)
    seconds = np.maximum(byte / (c.elem(kernel) * c.eta_m * device.bandwidth), c.elem_s)
    seconds = np.where(byte > 0, seconds, 0.0)
    return float(seconds) if seconds.ndim == 0 else seconds


def attention_seconds(device: Chip, flops: float, moved: float, dtype: str = "bf16") -> float:
    """Seconds of the forward pass of fused attention over a prompt or a training sequence; the backward pass has 2.5 times the work."""
    c = device.calibration
    if flops <= 0:
        return 0.0
    return max(flops / (c.eta_attn * c.eta_c * device.peak(dtype)), moved / (c.eta_m * device.bandwidth)) + c.t0


def decode_attention_seconds(device: Chip, moved: float, flops: float = 0.0, dtype: str = "bf16") -> float:
    """Seconds to attend to a cache of `moved` bytes with one query per sequence (latent attention is bound by its flops)."""
    c = device.calibration
    if moved <= 0:
        return 0.0
    return max(moved / (c.eta_decode * c.eta_m * device.bandwidth), flops / (c.eta_attn * c.eta_c * device.peak(dtype))) + c.t0


def unfused_attention_seconds(device: Chip, model: Model, sequences: int, tokens: int, heads: int, dtype: str = "bf16") -> float:
    """Seconds of attention that writes its scores: two batched products, and four passes over sequences · heads · tokens² scores."""
    key, value = model.attention_widths
    batch = sequences * heads
    products = gemm_seconds(device, tokens, tokens, key, dtype=dtype, copies=batch)
    products += gemm_seconds(device, tokens, value, tokens, dtype=dtype, copies=batch)
    return products + element_seconds(device, "softmax", 4 * WIDTH[dtype] * float(batch) * tokens * tokens)


def collective_seconds(fabric: Fabric, kind: str, payload: Any, degree: int, *, far: bool = False) -> Any:
    """Seconds of one collective of `payload` bytes (the whole tensor) over `degree` devices, in a node or (`far`) between nodes.

    The seconds are α·steps + sent/β. On the near link an all-reduce takes at least the measured seconds of a small one, and each of its
    halves at least half of them.
    """
    if degree < 2 and kind != "send":
        return 0.0 * np.asarray(payload, dtype=np.float64) if np.ndim(payload) else 0.0
    rate = fabric.far_rate if far else fabric.near_rate
    if kind == "send":
        start = fabric.far_s if far else fabric.near_s
    elif far:
        start = fabric.far_s * max(1.0, np.log2(degree)) * (2 if kind == "all-reduce" else 1)
    else:
        start = fabric.all_reduce_s / (1 if kind == "all-reduce" else 2)
    byte = np.asarray(payload, dtype=np.float64)
    seconds = np.where(byte > 0, start + byte * sent_share(kind, degree) / rate, 0.0)
    return float(seconds) if seconds.ndim == 0 else seconds


@dataclass(frozen=True)
class Operator:
    """One operator of a layer and its modelled seconds on one device."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Setting:
    """How a layer is run: on which device, over how many of them, in which type. `launch_s` is the host's seconds per kernel (6 µs without
    CUDA graphs).
    """

    device: Chip
    fabric: Fabric
    tp: int = 1
    #: The number of devices over which the experts are spread, and the number over which each expert is split (by default like other
    #: matrices where ep is 1).
    ep: int = 1
    expert_tp: int | None = None
    #: The ranks of the ep group that bring tokens of their own: 1 where all see the same tokens (serving over tp), ep over data-parallel
    #: ranks.
    gathered: int = 1
    dtype: str = "bf16"
    waves: bool = True
    launch_s: float = 0.0

    @property
    def expert_ways(self) -> int:
        """The number of devices over which the matrices of one expert are split."""
        return self.expert_tp if self.expert_tp is not None else 1 if self.ep > 1 else self.tp

    @property
    def width(self) -> int:
        """Bytes of an activation between matrix products."""
        return max(2, WIDTH[self.dtype])


def merged_product_seconds(model: Model, tensors: Iterable[Tensor], s: Setting, tokens: Any) -> Any:
    """Seconds of one product for tensors of a role that share their input (q, k, v; gate, up)."""
    shapes = [local_shape(model, t, s.tp, s.ep, s.expert_ways) for t in tensors]
    if not shapes:
        return None
    inputs, outputs = shapes[0][1], sum(out for _, _, out in shapes)
    first = next(iter(tensors))
    return gemm_seconds(s.device, tokens, outputs, inputs, dtype=s.dtype, weight_width=model.tensor_width(first), waves=s.waves)


def token_operators(model: Model, layer: Layer, tokens: Any, s: Setting, *, routing: Sequence[int] | None = None) -> list[tuple[str, Any]]:
    """Every operator of a layer that depends only on the new tokens (all but the core of attention), with its seconds, in order.

    `tokens` may be an array. `routing` gives the tokens per expert; without it experts are chosen uniformly at random.
    """
    n, h, w = np.asarray(tokens, dtype=np.float64), model.hidden, s.width
    key, _value = model.attention_widths
    norm, found = ("norm", 2 * w * h * n), []

    def product(role: str) -> None:
        tensors = layer.role(role)
        if tensors:
            found.append((role, merged_product_seconds(model, tensors, s, n)))

    def element(name: str, moved: Any) -> None:
        found.append((name, element_seconds(s.device, name, moved)))

    def reduce() -> None:
        if s.tp > 1:
            found.append(("all-reduce", collective_seconds(s.fabric, "all-reduce", w * h * n, s.tp)))

    element(*norm)
    for role in ("q_a", "q_b", "kv_a", "kv_b", "qkv"):
        product(role)
    turned = model.heads * (model.mla.rope if model.mla else key) + (model.mla.rope if model.mla else model.kv_heads * key)
    element("rope", 2 * w * turned * n / s.tp * model.rotary)
    product("o")
    reduce()
    element(*norm)
    if layer.mlp == "dense":
        product("gate_up")
        element("act", (3 if model.gated else 2) * w * model.ffn * n / s.tp)
        product("down")
    else:
        found.extend(_moe_operators(model, layer, n, s, routing))
    reduce()
    element("residual", 2 * 3 * w * h * n)
    if s.launch_s:
        found = [(name, np.where(n > 0, seconds + s.launch_s, 0.0)) for name, seconds in found]
    return found


def _moe_operators(model: Model, layer: Layer, n: Any, s: Setting, routing: Sequence[int] | None) -> list[tuple[str, Any]]:
    moe, w, h = model.moe, s.width, model.hidden
    assert moe is not None
    found: list[tuple[str, Any]] = [("router", merged_product_seconds(model, layer.role("router"), s, n))]
    met = n * s.gathered  # tokens of the whole group
    here = met * moe.top_k / s.ep  # rows that come to this device
    if s.ep > 1:
        found.append(("dispatch", collective_seconds(s.fabric, "all-to-all", w * h * here, s.ep)))
    for role, act in (("expert_gate_up", True), ("expert_down", False)):
        shapes = [local_shape(model, t, s.tp, s.ep, s.expert_ways) for t in layer.role(role)]
        inputs, outputs, width = shapes[0][1], sum(out for _, _, out in shapes), model.tensor_width(layer.role(role)[0])
        if routing is not None:
            if len(routing) != moe.experts:
                raise InputError(f"a routing over {len(routing)} experts; {model.name} has {moe.experts}")
            groups = np.asarray(routing).reshape(s.ep, -1)
            times = [grouped_gemm_seconds(s.device, g, outputs, inputs, dtype=s.dtype, weight_width=width, waves=s.waves) for g in groups]
            found.append((role, max(times)))
        else:
            # The expected number of distinct experts under even routing; the tokens that come to this device are divided among them.
            touched = (
                moe.experts / s.ep * -np.expm1(met * np.log1p(-moe.top_k / moe.experts)) if moe.top_k < moe.experts else moe.experts / s.ep
            )
            touched = np.where(n > 0, touched, 0.0)
            rows = np.divide(here, touched, out=np.zeros_like(n), where=touched > 0)
            seconds = gemm_seconds(
                s.device, rows, outputs, inputs, dtype=s.dtype, weight_width=width, waves=s.waves, copies=np.maximum(touched, 1e-300)
            )
            found.append((role, seconds))
        if act:
            found.append(("act", element_seconds(s.device, "act", 3 * w * moe.ffn * here / s.expert_ways)))
    if moe.shared_ffn:
        shared = [role for role in ("shared_gate", "shared_gate_up", "shared_down") if layer.role(role)]
        found.extend((role, merged_product_seconds(model, layer.role(role), s, n)) for role in shared)
    if s.ep > 1:
        found.append(("combine", collective_seconds(s.fabric, "all-to-all", w * h * here, s.ep)))
    return found


def layer(
    model: Model, kind: Layer, segments: Iterable[Segment | tuple[int, int]], setting: Setting, *, routing: Sequence[int] | None = None
) -> list[Operator]:
    """Every operator of one layer for some segments, in order of execution, with modelled seconds on one of the tp devices.

    Segments of one token are decodes, which read their cache; longer segments are prompt chunks, which count their pairs.
    """
    work = [Segment(*each) for each in segments]
    tokens = sum(each.new for each in work)
    found = [Operator(name, float(seconds)) for name, seconds in token_operators(model, kind, tokens, setting, routing=routing)]
    at = next(i for i, each in enumerate(found) if each.name == "rope") + 1
    seconds = 0.0
    chunks = sum(pairs(each.new, each.context, kind.window, model.causal) for each in work if each.new > 1)
    cached = sum(pairs(1, each.context, kind.window) for each in work if each.new == 1)
    rows = sum(each.new for each in work if each.new > 1)
    kv = model.kv_numbers * setting.width
    heads = setting.tp
    if chunks:
        key, value = model.attention_widths
        context = sum(each.context + each.new for each in work if each.new > 1)
        moved = rows * model.heads * (key + value) * setting.width / heads + context * kv * kv_share(model, heads)
        seconds += attention_seconds(setting.device, pair_flops(model) * chunks / heads, moved, setting.dtype)
    if cached:
        flops = pair_flops(model, absorbed=True) * cached / heads
        seconds += decode_attention_seconds(setting.device, cached * kv * kv_share(model, heads), flops, setting.dtype)
    launch = setting.launch_s * ((chunks > 0) + (cached > 0))
    return [*found[:at], Operator("attention", seconds + launch), *found[at:]]
