"""Seconds of a transformer's operators on a device: matrix products, attention, element-wise kernels, collectives.

A matrix product is a wave-quantised roofline: its output is cut into tiles, the tiles fill the multiprocessors in waves, and a wave
that is not full costs as much as a full one; whichever of that and the memory traffic is slower counts. The same functions price
serving and training. Everything is modelled, and carries the id and error of the device's calibration.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown
from armillary.llm.collectives import sent_share
from armillary.llm.cost import Segment, kv_share, local_shape, pair_flops, pairs
from armillary.llm.device import Chip, Fabric, chip
from armillary.llm.iteration import CostArrays
from armillary.llm.plan import check_tp
from armillary.llm.shapes import WIDTH, Layer, Lora, Model, Tensor

#: Ways in which the inner dimension may be split so that few tiles fill the device, and the shortest piece worth it.
SPLITS = (1, 2, 3, 4, 6, 8)
LEAST_SPLIT = 512


def gemm_seconds(
    device: Chip, m: Any, n: int, k: int, *, dtype: str = "bf16", weight_width: float | None = None, waves: bool = True, copies: Any = 1
) -> Any:
    """Seconds of (m × k) · (k × n), `copies` of them in one kernel; m may be an array.

    max(min over tiles (a, b, e) and splits s of ⌈⌈m/a⌉·⌈n/b⌉·copies·s/SM⌉·SM·a·b·2k/(s·e·η_c·peak) + the partial sums' traffic,
    bytes/(η_m·bandwidth)) + t0. `weight_width` is bytes of a weight where it is narrower than the type computed in.
    `waves=False`: the plain roofline, flops/(η_c·peak).
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
                sums = (s > 1) * s * 8.0 * rows * n * copies / (c.eta_m * device.bandwidth)  # fp32 partial sums, out and in
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
    """Seconds of fused attention over a prompt or a training sequence, forward; backward takes 2.5 times the work."""
    c = device.calibration
    if flops <= 0:
        return 0.0
    return max(flops / (c.eta_attn * c.eta_c * device.peak(dtype)), moved / (c.eta_m * device.bandwidth)) + c.t0


def decode_attention_seconds(device: Chip, moved: float, flops: float = 0.0, dtype: str = "bf16") -> float:
    """Seconds to attend to a cache of `moved` bytes with one query a sequence (latent attention is bound by its flops)."""
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

    α·steps + sent/β; on the near link an all-reduce takes at least what small ones are measured to take, and its halves half that.
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
    """One operator of a layer, in order of execution; modelled seconds on one device."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Setting:
    """How a layer is run: on what, over how many devices, in which type; `launch_s` is the host's seconds a kernel (6 µs eager)."""

    device: Chip
    fabric: Fabric
    tp: int = 1
    #: Devices over which the experts are spread, and over which each expert is split (by default like other matrices where ep is 1).
    ep: int = 1
    expert_tp: int | None = None
    #: Ranks of the ep group that bring tokens of their own: 1 where all see the same (serving over tp), ep over data-parallel ranks.
    gathered: int = 1
    dtype: str = "bf16"
    waves: bool = True
    launch_s: float = 0.0

    @property
    def expert_ways(self) -> int:
        """Devices over which one expert's matrices are split."""
        return self.expert_tp if self.expert_tp is not None else 1 if self.ep > 1 else self.tp

    @property
    def width(self) -> int:
        """Bytes of an activation between matrix products."""
        return max(2, WIDTH[self.dtype])


def _merged(model: Model, tensors: Iterable[Tensor], s: Setting, tokens: Any) -> Any:
    """One product for the tensors of a role that share their input (q, k, v; gate, up)."""
    shapes = [local_shape(model, t, s.tp, s.ep, s.expert_ways) for t in tensors]
    if not shapes:
        return None
    inputs, outputs = shapes[0][1], sum(out for _, _, out in shapes)
    first = next(iter(tensors))
    return gemm_seconds(s.device, tokens, outputs, inputs, dtype=s.dtype, weight_width=model.tensor_width(first), waves=s.waves)


def token_operators(model: Model, layer: Layer, tokens: Any, s: Setting, *, routing: Sequence[int] | None = None) -> list[tuple[str, Any]]:
    """Every operator of a layer that depends on the new tokens alone (attention's core apart), with its seconds, in order.

    `tokens` may be an array. Without a `routing` (tokens that each expert gets) experts are chosen evenly at random.
    """
    n, h, w = np.asarray(tokens, dtype=np.float64), model.hidden, s.width
    key, _value = model.attention_widths
    norm, found = ("norm", 2 * w * h * n), []

    def product(role: str) -> None:
        tensors = layer.role(role)
        if tensors:
            found.append((role, _merged(model, tensors, s, n)))

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
    found: list[tuple[str, Any]] = [("router", _merged(model, layer.role("router"), s, n))]
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
            # Expected distinct experts under even routing; their rows share the tokens that come to this device.
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
        found.extend((role, _merged(model, layer.role(role), s, n)) for role in shared)
    if s.ep > 1:
        found.append(("combine", collective_seconds(s.fabric, "all-to-all", w * h * here, s.ep)))
    return found


def layer(
    model: Model, kind: Layer, segments: Iterable[Segment | tuple[int, int]], setting: Setting, *, routing: Sequence[int] | None = None
) -> list[Operator]:
    """Every operator of one layer for some segments, in order of execution, with modelled seconds on one of the tp devices.

    Segments of one token decode: they read their cache; longer ones are prompt chunks and count their pairs.
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


@dataclass(frozen=True)
class StepCost:
    """Seconds of a serving engine's iterations, tabled once so that a simulator can ask millions of times. Modelled.

    seconds = body(new tokens) + head(sequences) + pair_s·Σpairs + context_s·Σcontext + adapters + host: what depends on the tokens is
    tabled at powers of two and linear between; attention is linear in the (query, key) pairs of prompt chunks and in the cached
    tokens that decodes read.
    """

    model: str
    device: str
    tp: int
    pp: int
    table: CostArrays
    #: Which calibration the seconds rest on, and its mean error; None: this device was never measured.
    calibration: str
    error: float | None
    _grid: list[float] = field(repr=False, compare=False)
    _body: list[float] = field(repr=False, compare=False)
    _head: list[float] = field(repr=False, compare=False)

    @staticmethod
    def build(
        model: Model | str, device: Chip | str, tp: int = 1, pp: int = 1, *, ep: int = 1, dtype: str | None = None,
        kv_dtype: str | None = None, lora: Lora | None = None, replicate_kv: bool = False, waves: bool = True, launch_s: float = 0.0,
        adapter_s: float = 0.0, host_s: float = 0.0, running_s: float = 0.0, waiting_s: float = 0.0, window_context: int = 4096,
        fabric: Fabric | None = None, most_tokens: int = 16384,
    ) -> StepCost:  # fmt: skip
        """The cost of `model` on `tp` × `pp` devices.

        dtype: what matrix products compute in (the model's own by default; fp8 where it is stored so). ep: experts spread whole over
        so many of the devices. lora: adapters whose matrices are read and multiplied; `adapter_s` the kernels' constant for each
        distinct one. host_s, running_s, waiting_s: the engine's own time, for an iteration and for each request. launch_s: 6 µs
        without CUDA graphs. window_context: tokens of context over which windowed layers, which read at most their window, are averaged.
        A pipeline's iteration passes all stages: pp > 1 adds the sends between them.
        """
        of = Model.find(model) if isinstance(model, str) else model
        on = chip(device)
        check_tp(of, tp, replicate_kv)
        if pp < 1 or pp > of.layers:
            raise InputError(f"pp: found {pp} for {of.layers} layers of {of.name}; expected 1 to {of.layers}")
        if ep > 1 and (of.moe is None or of.moe.experts % ep or tp % ep):
            raise InputError(f"ep: found {ep}; expected a divisor of the experts and of tp {tp}")
        if min(adapter_s, host_s, running_s, waiting_s, launch_s) < 0 or window_context < 1 or not 1 <= most_tokens <= 1 << 24:
            raise InputError("expected seconds of 0 or more, and at least one token")
        kind = dtype or ("fp8" if of.quantised and of.quantised.method == "fp8" else of.dtype)
        if kind not in WIDTH:
            raise unknown("dtype", kind, WIDTH)
        s = Setting(on, fabric or Fabric.of(on), tp, ep, dtype=kind, waves=waves, launch_s=launch_s)
        if lora is not None:
            of = replace(of, lora=lora)
        powers = [2**i for i in range(most_tokens.bit_length()) if 2**i < most_tokens]
        grid = np.array([0.0, *powers, most_tokens])
        body, head = _body(of, grid, s, pp), _head(of, grid, s)
        pair_s, context_s = _attention_rates(of, s, kv_dtype, window_context)
        c = on.calibration
        read = of.lora.rank * of.lora_reach * s.width / tp / (c.eta_m * on.bandwidth) if of.lora else 0.0
        rank_token = 2.0 * of.lora_reach / tp / (c.eta_c * on.peak(s.dtype)) if of.lora else 0.0
        table = CostArrays(grid, body, head, pair_s, context_s, 0.0, adapter_s + read, rank_token, host_s, running_s, waiting_s)
        return StepCost(of.name, on.name, tp, pp, table, c.said(), c.error, grid.tolist(), body.tolist(), head.tolist())

    def arrays(self) -> CostArrays:
        """The numbers for a compiled loop."""
        return self.table

    def _at(self, table: list[float], tokens: float) -> float:
        grid = self._grid
        i = min(bisect_right(grid, tokens), len(grid) - 1)
        low = grid[i - 1]
        return table[i - 1] + (table[i] - table[i - 1]) * (tokens - low) / (grid[i] - low)

    def body(self, tokens: float) -> float:
        """Seconds of all that depends on the new tokens alone: projections, norms, collectives of all layers."""
        return self._at(self._body, tokens)

    def head(self, sequences: float) -> float:
        """Seconds of the head and of sampling for so many sequences."""
        return self._at(self._head, sequences)

    def decode(self, batch: int, total_context: int) -> float:
        """Seconds to make one token for each of `batch` sequences that read `total_context` cached tokens together."""
        t = self.table
        return self._at(self._body, batch) + self._at(self._head, batch) + t.context_s * total_context + t.host_s + t.running_s * batch

    def prefill(self, new_tokens: int, sum_pairs: int, sequences: int = 1) -> float:
        """Seconds to take in `new_tokens` of prompts with `sum_pairs` (query, key) pairs."""
        t = self.table
        return (
            self._at(self._body, new_tokens) + self._at(self._head, sequences) + t.pair_s * sum_pairs + t.host_s + t.running_s * sequences
        )

    def mixed(
        self, new_tokens: int, sum_pairs: int, total_context: int, sequences: int, *, adapters: int = 0, rank_tokens: float = 0.0,
        waiting: int = 0,
    ) -> float:  # fmt: skip
        """Seconds of an iteration of prompt chunks and decodes together: all its new tokens, and each kind's attention."""
        t = self.table
        attention = t.pair_s * sum_pairs + t.context_s * total_context
        extra = t.adapter_s * adapters + t.rank_token_s * rank_tokens + t.host_s + t.running_s * sequences + t.waiting_s * waiting
        return self._at(self._body, new_tokens) + self._at(self._head, sequences) + attention + extra


def _body(model: Model, grid: npt.NDArray[np.float64], s: Setting, pp: int) -> npt.NDArray[np.float64]:
    total = np.asarray(element_seconds(s.device, "embedding", 2.0 * s.width * model.hidden * grid))
    start = s.device.calibration.t0 + s.launch_s
    for kind, count in model.kinds:
        each = sum(seconds for _, seconds in token_operators(model, kind, grid, s))
        total = total + count * (each + np.where(grid > 0, start, 0.0))
    if pp > 1:
        total = total + (pp - 1) * collective_seconds(
            s.fabric, "send", grid * model.hidden * s.width / s.tp, 2, far=s.tp * pp > s.fabric.node
        )
    return np.maximum.accumulate(total)


def _head(model: Model, grid: npt.NDArray[np.float64], s: Setting) -> npt.NDArray[np.float64]:
    total = np.asarray(element_seconds(s.device, "norm", 2.0 * s.width * model.hidden * grid))
    for tensor in model.once:
        if tensor.part == "head" and tensor.matmul:
            total = total + _merged(model, (tensor,), s, grid)
    return total + element_seconds(s.device, "sampling", 6.0 * model.vocab / s.tp * grid)


def _attention_rates(model: Model, s: Setting, kv_dtype: str | None, window_context: int) -> tuple[float, float]:
    """Seconds of one pair of a prompt chunk, and of one cached token that a decode reads, over all layers."""
    if kv_dtype is not None and kv_dtype not in WIDTH:
        raise unknown("dtype", kv_dtype, WIDTH)
    c, on = s.device.calibration, s.device
    layers = sum(count * (1.0 if kind.window is None else min(1.0, kind.window / window_context)) for kind, count in model.kinds)
    # Attention computes in the activations' type even where matrix products are narrower.
    rate = c.eta_attn * c.eta_c * on.peak("bf16" if WIDTH[s.dtype] < 2 else s.dtype)
    moved = model.kv_numbers * (WIDTH[kv_dtype] if kv_dtype else s.width) * kv_share(model, s.tp)
    read = moved / (c.eta_decode * c.eta_m * on.bandwidth)
    return layers * pair_flops(model) / s.tp / rate, layers * max(read, pair_flops(model, absorbed=True) / s.tp / rate)
