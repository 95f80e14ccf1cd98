"""What an MoE training iteration does on the network, and when: idle spans between collectives, which depend on how tokens fell on experts.

A trace of expert load gives, for every iteration and MoE layer, the tokens that each expert got. The most loaded rank decides how long the
experts of a layer compute and how long its all-to-alls take, because all ranks wait for it. Between two collectives the network is idle:
these spans are where a checkpoint can travel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.llm import Model

from .simulation.machine import Machine

if TYPE_CHECKING:
    from armillary.llm import Layer
    from armillary.workloads import Failures

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
#: Bounds for what a file may describe.
MOST_ITERATIONS, MOST_ROWS, MOST_EXPERTS, MOST_TOKENS, MOST_SPANS = 100_000, 20_000_000, 4096, 1 << 31, 20_000_000
#: Iterations at the beginning that every technique may use to get to know the training; no metric counts them.
WARM_UP = 20
#: Bytes per parameter: a 16-bit weight, and in fp32 the master weight and two moments.
WEIGHT_BYTES, STATE_BYTES = 2, 14
#: Lognormal jitter of every span of every iteration.
JITTER = 0.03
#: Bytes that Adam moves per parameter in its update.
_UPDATE = 30.0


@dataclass(frozen=True)
class Outages:
    """Failures of nodes within `horizon_s` seconds, and the mean seconds between two of them."""

    events: Failures
    horizon_s: float
    mtbf_s: float


@dataclass(frozen=True)
class CheckpointWork:
    """A training run of T iterations, each of S spans in which the network is idle.

    `spans` [T, S] are seconds of computation of the slowest rank, `busy` [T, S] the seconds of the collective after each; `update_s` is
    the optimizer's. `tokens` [T, M, E] are the tokens per expert of every MoE layer in one expert-parallel group of `ep` ranks.
    `expert` [S] is the MoE layer whose experts compute in a span, or −1; `backward` [S] says whether it is one of the backward pass.
    `state` are the bytes per rank of a checkpoint. `every` is 1 where a checkpoint of every iteration is asked for, and 0 where each
    technique chooses its interval.
    """

    name: str
    machine: Machine
    tokens: IntArray
    ep: int
    spans: FloatArray
    busy: FloatArray
    expert: IntArray
    backward: npt.NDArray[np.bool_]
    update_s: float
    state: float
    every: int = 1
    outages: Outages | None = None
    notes: tuple[str, ...] = ()

    @property
    def iterations(self) -> int:
        """The number of iterations, the warm-up included."""
        return len(self.spans)

    @cached_property
    def plain_s(self) -> FloatArray:
        """Seconds of each iteration without checkpoints."""
        found: FloatArray = self.spans.sum(axis=1) + self.busy.sum(axis=1) + self.update_s
        return found

    @cached_property
    def load(self) -> FloatArray:
        """[T, M]: the tokens of the most loaded rank."""
        return most_loaded(self.tokens, self.ep)

    @cached_property
    def shares(self) -> FloatArray:
        """[T, M, E]: the share of the layer's tokens that each expert got; the router knows it without further work."""
        found: FloatArray = self.tokens / np.maximum(self.tokens.sum(axis=2, keepdims=True), 1)
        return found

    def with_state(self, state: float) -> CheckpointWork:
        """The same training with checkpoints of another size, in bytes per rank."""
        return replace(self, state=state)


def most_loaded(tokens: IntArray, ep: int) -> FloatArray:
    """[..., M]: tokens of the rank with the most, where [..., M, E] experts are spread over `ep` ranks in order."""
    ranks = tokens.reshape(*tokens.shape[:-1], ep, tokens.shape[-1] // ep).sum(axis=-1)
    found: FloatArray = ranks.max(axis=-1).astype(np.float64)
    return found


def moe_model(name: str) -> Model:
    """A preset, a config.json, or one of the arena's GPTs whose feed-forward parts are eight experts: gpt-moe-125m, -350m and -1.3b."""
    if name not in GPT_MOE:
        return Model.find(name)
    hidden, layers, heads, ffn = GPT_MOE[name]
    return Model.from_config({
        "model_type": "mixtral", "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": heads, "intermediate_size": ffn, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 50257,
        "tie_word_embeddings": True,
    }, name=name)  # fmt: skip


#: GPT-3's shapes; gated experts of 8/3 of the hidden size have as many weights as GPT's plain ones.
GPT_MOE = {"gpt-moe-125m": (768, 12, 12, 2048), "gpt-moe-350m": (1024, 24, 16, 2688), "gpt-moe-1.3b": (2048, 24, 16, 5504)}


def moe_work(
    model: Model, machine: Machine, tokens: IntArray, *, ep: int, sequences: int, length: int, rng: np.random.Generator | None = None,
    across: bool = True, every: int = 1, jitter: float = JITTER, outages: Outages | None = None, name: str | None = None,
    state_bytes: float = STATE_BYTES,
) -> CheckpointWork:  # fmt: skip
    """Training of an MoE on all GPUs of a machine: data parallel, experts spread over `ep` GPUs, optimizer states sharded over all.

    Every GPU has `sequences` sequences of `length` tokens per iteration. `across` says whether the GPUs of an expert-parallel group are
    on several nodes, so that all-to-alls use the network; otherwise they use the links inside the node and the network is idle from the
    first layer to the gradients. `tokens` [T, M, E] is the expert load of one group. Seconds come from `armillary.llm`; the backward pass
    takes twice the forward pass. Each rank checkpoints the part of the state that it owns: `state_bytes` per parameter, over all GPUs.
    """
    moe = model.moe
    if moe is None:
        raise InputError(f"{model.name} has no experts; expected a mixture of experts")
    sparse = [layer for layer, count in model.kinds for _ in range(count) if layer.mlp == "moe"]
    if tokens.ndim != 3 or tokens.shape[1:] != (len(sparse), moe.experts):
        raise InputError(f"a load of shape {tokens.shape}; {model.name} has {len(sparse)} MoE layers of {moe.experts} experts")
    if moe.experts % ep or machine.gpus % ep:
        raise InputError(f"ep: found {ep}; expected a divisor of {moe.experts} experts and of {machine.gpus} GPUs")
    if not across and ep > machine.fabric.node:
        raise InputError(f"ep: found {ep} inside a node of {machine.fabric.node} GPUs; expected groups across nodes")
    if not 1 <= sequences * length <= 1 << 24:
        raise InputError(f"a batch of {sequences} × {length} tokens per GPU; expected 1 to 2^24")
    if len(tokens) * (4 * len(sparse) + 1) > MOST_SPANS:
        raise InputError(f"{len(tokens)} iterations of {len(sparse)} MoE layers; expected at most {MOST_SPANS:,} spans, four per layer")
    across = across and machine.nodes > 1
    frame = _Frame(model, machine, ep, sequences, length, across)
    spans, busy = frame.seconds(tokens)
    expert, backward = np.array(frame.expert, np.int64), np.array(frame.backward)
    if not across:
        spans, busy = (spans.sum(axis=1) + busy[:, :-1].sum(axis=1))[:, None], busy[:, -1:]
        expert, backward = np.array([-1]), np.array([False])
    if jitter and rng is not None:
        spans = spans * np.exp(rng.normal(0.0, jitter, spans.shape))
    calibration = machine.chip.calibration
    owned = model.params() / machine.gpus
    update_s = _UPDATE * owned / (calibration.eta_m * machine.chip.bandwidth)
    return CheckpointWork(
        name or model.name, machine, tokens, ep, spans, busy, expert, backward, update_s, state_bytes * owned, every, outages,
        () if calibration.calibrated else (f"{machine.chip.name} is not calibrated",),
    )  # fmt: skip


class _Frame:
    """The spans of an iteration in order: a fixed part, and a multiple of what the experts of a layer take."""

    def __init__(self, model: Model, machine: Machine, ep: int, sequences: int, length: int, across: bool) -> None:
        self.model, self.machine, self.ep, self.across = model, machine, ep, across
        self.fixed: list[float] = []
        self.times: list[float] = []
        self.expert: list[int] = []
        self.backward: list[bool] = []
        #: The MoE layer whose all-to-all follows each span.
        self.after: list[int] = []
        self.sparse: list[Layer] = []
        self._now = 0.0
        layers = [layer for layer, count in model.kinds for _ in range(count)]
        kinds = {layer: self._parts(layer, sequences, length) for layer, _ in model.kinds}
        parts = [kinds[layer] for layer in layers]
        numbers = []
        for i, (before, shared) in enumerate(parts):
            self._now += before
            if layers[i].mlp == "moe":
                m = len(self.sparse)
                self.sparse.append(layers[i])
                numbers.append(m)
                self._emit(-1, 0.0, False, m)
                self._now = shared
                self._emit(m, 1.0, False, m)
            else:
                numbers.append(-1)
        self._now += 3 * self._head(sequences * length)
        for i in range(model.layers - 1, -1, -1):
            before, shared = parts[i]
            if numbers[i] >= 0:
                self._emit(-1, 0.0, True, numbers[i])
                self._now = 2 * shared
                self._emit(numbers[i], 2.0, True, numbers[i])
            self._now += 2 * before
        self._emit(-1, 0.0, True, -1)

    def _emit(self, expert: int, times: float, backward: bool, after: int) -> None:
        self.fixed.append(self._now)
        self.times.append(times)
        self.expert.append(expert)
        self.backward.append(backward)
        self.after.append(after)
        self._now = 0.0

    def _parts(self, layer: Layer, sequences: int, length: int) -> tuple[float, float]:
        """(seconds before the experts, seconds of shared experts) of the forward pass; a dense layer has no second part."""
        from armillary.llm.cost.counts import pair_flops, pairs
        from armillary.llm.cost.operators import Setting, attention_seconds, token_operators

        model, chip = self.model, self.machine.chip
        setting = Setting(chip, self.machine.fabric, ep=self.ep, gathered=self.ep)
        key, value = model.attention_widths
        flops = pair_flops(model) * sequences * pairs(length, 0, layer.window, model.causal)
        before = attention_seconds(chip, flops, 4.0 * sequences * length * model.heads * (key + value))
        shared, late = 0.0, False
        for name, seconds in token_operators(model, layer, sequences * length, setting):
            if name == "dispatch" or name.startswith("expert_"):
                late = True
            elif name == "combine" or (name == "act" and layer.mlp == "moe"):
                continue
            elif late and name.startswith("shared"):
                shared += float(seconds)
            else:
                before += float(seconds)
        return before, shared

    def _head(self, tokens: int) -> float:
        from armillary.llm.cost.operators import gemm_seconds

        return float(gemm_seconds(self.machine.chip, tokens, self.model.vocab, self.model.hidden))

    def seconds(self, tokens: IntArray) -> tuple[FloatArray, FloatArray]:
        """([T, S] of computation, [T, S] of the collective after each) for a load [T, M, E]."""
        experts = expert_seconds(self.model, self.sparse[0], tokens, self.ep, self.machine)
        moved = self._exchange(most_loaded(tokens, self.ep))
        count = len(tokens)
        spans, busy = np.empty((count, len(self.fixed))), np.empty((count, len(self.fixed)))
        for j, (fixed, times, m, after) in enumerate(zip(self.fixed, self.times, self.expert, self.after, strict=True)):
            spans[:, j] = fixed + times * experts[:, m] if times else fixed
            busy[:, j] = moved[:, after] if after >= 0 else self._gradients()
        return spans, busy

    def _exchange(self, load: FloatArray) -> FloatArray:
        """Seconds of an all-to-all whose most loaded rank gets `load` tokens."""
        from armillary.llm.cost.operators import collective_seconds

        found: FloatArray = collective_seconds(self.machine.fabric, "all-to-all", 2.0 * self.model.hidden * load, self.ep, far=self.across)
        return found

    def _gradients(self) -> float:
        """Seconds of the all-reduces of dense gradients over all GPUs and of the experts' over their copies, in 16 bits."""
        from armillary.llm.cost.operators import collective_seconds

        total, gpus = self.model.params(), self.machine.gpus
        experts = sum(t.params for layer in self.sparse for t in layer.tensors if t.role.startswith("expert"))
        far, fabric = gpus > self.machine.fabric.node, self.machine.fabric
        dense_s = collective_seconds(fabric, "all-reduce", 2.0 * (total - experts), gpus, far=far)
        return float(dense_s + collective_seconds(fabric, "all-reduce", 2.0 * experts / self.ep, gpus // self.ep, far=far))


def expert_seconds(model: Model, layer: Layer, tokens: IntArray, ep: int, machine: Machine) -> FloatArray:
    """[T, M]: forward seconds of the experts of each layer on the slowest of `ep` ranks, as grouped products of all its experts.

    The same wave-quantised roofline as `armillary.llm`'s grouped product, for a whole trace at once.
    """
    from armillary.llm.cost.operators import element_seconds

    moe = model.moe
    assert moe is not None
    ranks = tokens.reshape(*tokens.shape[:2], ep, -1).astype(np.float64)
    up = sum(t.outputs for t in layer.role("expert_gate_up"))
    total = _grouped(machine, ranks, up, model.hidden) + _grouped(machine, ranks, model.hidden, moe.ffn)
    total = total + element_seconds(machine.chip, "act", 6.0 * moe.ffn * ranks.sum(axis=3))
    found: FloatArray = total.max(axis=2)
    return found


def _grouped(machine: Machine, rows: FloatArray, n: int, k: int) -> FloatArray:
    """[T, M, ranks]: seconds of one kernel that multiplies the rows of each expert with its own k × n matrix, in bf16."""
    chip, c = machine.chip, machine.chip.calibration
    rate = c.eta_c * chip.peak("bf16")
    total, met = rows.sum(axis=3), (rows > 0).sum(axis=3)
    if chip.sms:
        compute: Any = np.inf
        for a, b, e in c.tiles:
            tiles = (np.ceil(rows / a) * -(-n // b)).sum(axis=3)
            compute = np.minimum(compute, np.ceil(tiles / chip.sms) * (chip.sms * a * b * 2.0 * k / (e * rate)))
    else:
        compute = total * (2.0 * n * k / rate)
    moved = 2.0 * total * (k + n) + met * 2.0 * float(k) * n
    return np.where(met > 0, np.maximum(compute, moved / (c.eta_m * chip.bandwidth)) + c.t0, 0.0)


def expert_load(
    rng: np.random.Generator, iterations: int, layers: int, experts: int, tokens: int, *, how: str = "skewed", rho: float = 0.98,
    capacity: float = 0.0,
) -> IntArray:  # fmt: skip
    """[T, M, E]: `tokens` per iteration and layer that fall on experts (ours).

    `skewed`: every layer draws its experts' popularity from Dirichlet(0.3); the logits follow an AR(1) walk, x ← ρ·x + 0.08·N(0, 1), and
    with probability 1/200 per iteration two experts of every layer are drawn anew. `balanced`: popularity is even and the walk four
    times as small, as an auxiliary loss keeps it. `iid`: every iteration draws its popularity anew, so that nothing can be learnt.
    `capacity` above 0 lets an expert take at most capacity · tokens / experts; what is beyond is dropped.
    """
    if how not in ("skewed", "balanced", "iid"):
        raise InputError(f'load: found "{how}"; expected skewed, balanced or iid')
    base = np.full((layers, experts), 1.0 / experts) if how == "balanced" else rng.dirichlet(np.full(experts, 0.3), layers)
    sigma = 0.08 * (0.25 if how == "balanced" else 1.0)
    walk = np.zeros((layers, experts))
    found = np.empty((iterations, layers, experts), np.int64)
    for t in range(iterations):
        if how == "iid":
            base = rng.dirichlet(np.full(experts, 0.3), layers)
        else:
            walk = rho * walk + sigma * rng.standard_normal((layers, experts))
            if how == "skewed" and rng.random() < 1 / 200:
                base = _redrawn(rng, base)
        weight = np.maximum(base, 1e-12) * np.exp(walk)
        found[t] = rng.multinomial(tokens, weight / weight.sum(axis=1, keepdims=True))
    return np.minimum(found, int(np.ceil(capacity * tokens / experts))) if capacity else found


def _redrawn(rng: np.random.Generator, base: FloatArray) -> FloatArray:
    """Two experts of every layer with a new popularity."""
    made = base.copy()
    for row in made:
        two = rng.choice(len(row), 2, replace=False) if len(row) > 1 else np.array([0])
        row[two] = rng.dirichlet(np.full(len(row), 0.3))[: len(two)]
        row /= row.sum()
    return made
