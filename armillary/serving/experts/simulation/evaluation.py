"""Simulates how long the requests of a trace take on a placement of experts, with data- or tensor-parallel attention.

Requests come in waves: one step processes all prompts of a wave, and every further step makes a token for each request. In each layer of
a step, attention runs on every device, tokens go to the devices of their experts, the experts compute their products, and the results
return. The slowest device sets the time of each part. With Attention-DP a device has whole requests. With Attention-TP all devices share
every token's attention, a reduce-scatter leaves equal parts of the tokens on the devices, by position or shuffled, and an all-gather
follows the experts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from armillary.errors import unknown
from armillary.llm.cost.counts import local_shape, pair_flops
from armillary.llm.cost.device import Chip, Fabric, chip
from armillary.llm.cost.operators import (
    Setting,
    attention_seconds,
    collective_seconds,
    decode_attention_seconds,
    element_seconds,
    gemm_seconds,
    grouped_gemm_seconds,
    token_operators,
)
from armillary.llm.model.shapes import Layer, Model

from ..planning.placement import ExpertPlacement, bucket_sizes
from ..routing.trace import RoutingTrace
from .dispatch import assign
from .traffic import Traffic, count_traffic

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Attention = Literal["dp", "tp"]
#: Operators whose seconds come from the routing itself, or from other collectives.
_APART = ("expert_gate_up", "act", "expert_down", "all-reduce")
LINKS = ("nvlink", "pcie", "100gbe")
#: Bytes per second of PCIe 5.0 x16 each way: 63 GB/s less the protocol's share (ours, as in serving/resilience).
PCIE = 55e9


@dataclass(frozen=True)
class Ground:
    """The machine: devices of one kind and their fabric. pair_rate is bytes/s between two devices that have a link of their own."""

    device: Chip
    fabric: Fabric
    devices: int
    pair_rate: float | None = None

    @classmethod
    def of(cls, link: str, devices: int, device: str = "h100-80") -> Ground:
        """Returns devices joined by NVLink, PCIe (55 GB/s per device and direction) or 100 Gb/s Ethernet (one port per device, at 90 %)."""
        on = chip(device)
        near = Fabric.of(on, devices)
        if link == "pcie":
            near = replace(near, near_rate=PCIE)
        elif link == "100gbe":
            near = replace(near, near_rate=0.9 * 12.5e9, all_reduce_s=2 * near.far_s * max(1.0, np.log2(devices)))
        elif link != "nvlink":
            raise unknown("link", link, LINKS)
        return cls(on, near, devices)

    def all_to_all(self, sent: npt.NDArray[Any]) -> Floats:
        """Returns the seconds [...] to send [..., from, to] bytes, set by the busiest device or by the busiest pair's own link.

        The latency is that of every collective of `armillary.llm.cost.operators` except the all-reduce.
        """
        busiest = np.maximum(sent.sum(axis=-1).max(axis=-1), sent.sum(axis=-2).max(axis=-1)) / self.fabric.near_rate
        if self.pair_rate:
            busiest = np.maximum(busiest, sent.max(axis=(-1, -2)) / self.pair_rate)
        return np.where(sent.any(axis=(-1, -2)), self.fabric.all_reduce_s / 2 + busiest, 0.0)


@dataclass(frozen=True)
class Served:
    """The result of a run. Times are simulated seconds; `parts` [layers traced, steps] holds the seconds of each part of a layer."""

    local_rate: float
    bytes_per_token: float
    expert_imbalance: float
    #: The most tokens on a device over the mean, averaged over waves, which results from the dispatch of requests.
    request_imbalance: float
    seconds: float
    tokens: int
    ttft_s: Floats
    latency_s: Floats
    parts: dict[str, Floats]

    @property
    def throughput(self) -> float:
        """The prompt and output tokens per second."""
        return self.tokens / self.seconds

    @property
    def all_to_all_share(self) -> float:
        """The share of the experts' time (dispatch, products and combine) that tokens travel."""
        moved = float(self.parts["dispatch"].sum() + self.parts["combine"].sum())
        return moved / (moved + float(self.parts["experts"].sum()))

    def perfetto(self, steps: int = 8) -> list[dict[str, Any]]:
        """Returns trace events of the first steps for Perfetto and Chrome."""
        events, now = [], 0.0
        layers, most = self.parts["attention"].shape
        for step in range(min(steps, most)):
            for layer in range(layers):
                for track, (part, seconds) in enumerate(self.parts.items()):
                    long = 1e6 * float(seconds[layer, step])
                    if long > 0:
                        name = f"{part}, layer {layer}"
                        events.append({"name": name, "ph": "X", "pid": 0, "tid": track, "ts": round(now, 3), "dur": round(long, 3)})
                        now += long
        return events


def serve(
    trace: RoutingTrace, placement: ExpertPlacement, model: Model, ground: Ground, *, attention: Attention = "dp", wave: int = 128,
    by_score: bool = False, host_s: float = 0.0,
) -> Served:  # fmt: skip
    """Serves a trace's requests, `wave` at a time. With by_score, requests (dp) or tokens (tp) go where their experts are.

    The traced layers stand for all layers with experts; the other layers and the head are added. host_s is a step's fixed time.
    """
    step, base = _steps(trace, wave)
    steps = int(step.max()) + 1
    if attention == "dp":
        where = assign(trace, placement, wave, by_score=by_score)
        fixed = where[trace.request]
        counts = [count_traffic(placement, layer, trace.chosen[layer], step, fixed, steps) for layer in range(trace.layers)]
        held = _tally(step, fixed, steps, ground.devices)
        tp = 1
    else:
        parts = _by_step(step, steps)
        counts = []
        for layer in range(trace.layers):
            source = _scattered(trace, placement, layer, parts, by_score)
            counts.append(count_traffic(placement, layer, trace.chosen[layer], step, source, steps))
        held = np.bincount(step, minlength=steps)[:, None].astype(np.int64)
        fixed = np.zeros(len(trace), np.int64)  # every device does the same
        tp = ground.devices
    clock = _Clock(model, ground, tp)
    sparse = next(kind for kind, _ in model.kinds if kind.mlp == "moe")
    core = clock.attention(trace, step, fixed, held)
    wide = 2 * model.hidden
    timed: dict[str, list[Floats]] = {"attention": [], "scatter": [], "dispatch": [], "experts": [], "combine": [], "gather": []}
    whole = np.bincount(step, minlength=steps) * float(wide)
    at_home = (clock.body(sparse, held) + core).max(axis=1)
    for one in counts:
        timed["attention"].append(at_home)
        timed["dispatch"].append(ground.all_to_all(one.pairs * wide))
        timed["experts"].append(clock.experts(sparse, one))
        timed["combine"].append(ground.all_to_all(one.pairs.transpose(0, 2, 1) * wide))
        for name, collective in (("scatter", "reduce-scatter"), ("gather", "all-gather")):
            timed[name].append(np.asarray(collective_seconds(ground.fabric, collective, whole, tp)) + np.zeros(steps))
    made = {name: np.array(rows) for name, rows in timed.items()}
    with_experts = sum(count for kind, count in model.kinds if kind.mlp == "moe")
    seconds = sum(rows.sum(axis=0) for rows in made.values()) * (with_experts / trace.layers)
    for kind, count in model.kinds:
        if kind.mlp != "moe":
            reduce = 2 * np.asarray(collective_seconds(ground.fabric, "all-reduce", whole, tp))
            seconds = seconds + count * ((clock.body(kind, held) + core).max(axis=1) + reduce)
    sequences = _tally(step[_last(trace)], fixed[_last(trace)], steps, held.shape[1])
    seconds = seconds + clock.head(sequences).max(axis=1) + host_s
    return _summed(trace, placement, counts, seconds, step, base, wave, fixed, made, wide)


def _steps(trace: RoutingTrace, wave: int) -> tuple[Ints, Ints]:
    """Returns the step of each token [tokens] and the first step of each wave [waves + 1]."""
    after = np.maximum(trace.position - trace.prompt[trace.request] + 1, 0).astype(np.int64)
    group = trace.request // wave
    longest = np.zeros(int(group.max()) + 1, np.int64)
    np.maximum.at(longest, group, after)
    base = np.concatenate([[0], np.cumsum(longest + 1)])
    return base[group] + after, base


def _by_step(step: Ints, steps: int) -> list[Ints]:
    order = np.argsort(step, kind="stable")
    return np.split(order, np.searchsorted(step[order], np.arange(1, steps)))


def _last(trace: RoutingTrace) -> npt.NDArray[np.bool_]:
    """Returns the tokens after which a token is made, which are the last of each prompt and all generated ones."""
    return trace.position >= trace.prompt[trace.request] - 1


def _scattered(trace: RoutingTrace, placement: ExpertPlacement, layer: int, parts: list[Ints], shuffled: bool) -> Ints:
    """Returns the device on which the reduce-scatter of each step leaves each token."""
    source = np.empty(len(trace), np.int64)
    for mine in parts:
        bucket = np.repeat(np.arange(placement.devices), bucket_sizes(len(mine), placement.devices))
        source[mine] = bucket[placement.shuffle(trace.token_id[mine], layer)[1]] if shuffled else bucket
    return source


def _tally(step: Ints, device: Ints, steps: int, devices: int) -> Ints:
    return np.bincount(step * devices + device, minlength=steps * devices).reshape(steps, devices)


class _Clock:
    """Seconds of a layer's parts on one device, for all steps at once."""

    def __init__(self, model: Model, ground: Ground, tp: int) -> None:
        self.model, self.ground, self.tp = model, ground, tp
        self.setting = Setting(ground.device, ground.fabric, tp)

    def body(self, kind: Layer, held: Ints) -> Floats:
        """Returns the seconds [steps, devices] that depend on the tokens at home: norms, projections, router, shared experts or MLP."""
        apart = _APART if kind.mlp == "moe" else ("all-reduce",)
        found = token_operators(self.model, kind, held, self.setting)
        return np.asarray(sum(seconds for name, seconds in found if name not in apart), float)

    def attention(self, trace: RoutingTrace, step: Ints, device: Ints, held: Ints) -> Floats:
        """Returns the seconds of attention [steps, devices]: prompts by their (query, key) pairs, and then cached tokens."""
        steps, devices = held.shape
        cell = step * devices + device
        prompt = trace.position < trace.prompt[trace.request]
        seen = trace.position.astype(float) + 1.0
        pairs = np.bincount(cell[prompt], weights=seen[prompt], minlength=steps * devices)
        cached = np.bincount(cell[~prompt], weights=seen[~prompt], minlength=steps * devices)
        rows = np.bincount(cell[prompt], minlength=steps * devices)
        key, value = self.model.attention_widths
        kv = 2.0 * self.model.kv_numbers / min(self.tp, self.model.kv_heads if not self.model.mla else 1)
        on = self.ground.device
        found = np.zeros(steps * devices)
        for i in np.flatnonzero(pairs):
            moved = rows[i] * (2.0 * self.model.heads * (key + value) / self.tp + kv)
            found[i] += attention_seconds(on, pair_flops(self.model) * pairs[i] / self.tp, moved)
        for i in np.flatnonzero(cached):
            found[i] += decode_attention_seconds(on, cached[i] * kv, pair_flops(self.model, absorbed=True) * cached[i] / self.tp)
        return found.reshape(steps, devices)

    def experts(self, kind: Layer, traffic: Traffic) -> Floats:
        """Returns the seconds [steps] of the slowest device's two products over its experts' rows, with the activation between them."""
        moe, on = self.model.moe, self.ground.device
        assert moe is not None
        shapes = []
        for role in ("expert_gate_up", "expert_down"):
            tensors = kind.role(role)
            local = [local_shape(self.model, t, 1, 1, 1) for t in tensors]
            shapes.append((sum(out for _, _, out in local), local[0][1], self.model.tensor_width(tensors[0])))
        held = traffic.rows.sum(axis=2)
        act = np.asarray(element_seconds(on, "act", 3.0 * 2 * moe.ffn * held))
        steps, devices = held.shape
        found = np.zeros((steps, devices))
        for s in range(steps):
            for d in np.flatnonzero(held[s]):
                rows = traffic.rows[s, d]
                found[s, d] = sum(grouped_gemm_seconds(on, rows, n, k, weight_width=width) for n, k, width in shapes)
        return np.asarray((found + act).max(axis=1))

    def head(self, sequences: Ints) -> Floats:
        """Returns the seconds of the next token's logits, [steps, devices]."""
        return np.asarray(gemm_seconds(self.ground.device, sequences, -(-self.model.vocab // self.tp), self.model.hidden))


def _summed(
    trace: RoutingTrace, placement: ExpertPlacement, counts: list[Traffic], seconds: Floats, step: Ints, base: Ints, wave: int,
    device: Ints, parts: dict[str, Floats], wide: int,
) -> Served:  # fmt: skip
    clock = np.concatenate([[0.0], np.cumsum(seconds)])
    group = np.arange(trace.requests) // wave
    start = clock[base[group]]
    last = np.zeros(trace.requests, np.int64)
    np.maximum.at(last, trace.request, step)
    loads = np.array([one.rows.sum(axis=(0, 2)) for one in counts], float)
    sent = sum(int(one.pairs.sum()) for one in counts)
    local = sum(one.local for one in counts)
    waves = _tally(trace.request.astype(np.int64) // wave, device, int(group.max()) + 1, placement.devices if device.any() else 1).astype(
        float
    )
    return Served(
        local_rate=local / sum(one.activations for one in counts),
        bytes_per_token=2.0 * wide * sent / (len(trace) * len(counts)),
        expert_imbalance=float((loads.max(axis=1) / loads.mean(axis=1)).mean()),
        request_imbalance=float((waves.max(axis=1) / waves.mean(axis=1)).mean()),
        seconds=float(clock[-1]),
        tokens=len(trace),
        ttft_s=clock[base[group] + 1] - start,
        latency_s=clock[last + 1] - start,
        parts=parts,
    )
