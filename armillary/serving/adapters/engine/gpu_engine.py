"""The engine on one GPU: its memory for slots and KV, its steps in the simulator, and its twin."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.llm import Model, Replica
    from armillary.llm.cost.iteration import CostArrays

    from .twin import Twin, TwinModel

#: The numbers of slots for adapters that are tried.
SLOTS = (8, 16, 32, 64, 96, 128, 160, 192, 256, 320, 384)
MAX_SEQS = 4096
#: Families for which vLLM lets adapters change embeddings and head (`embedding_modules` of its model classes, releases of 2024 and 2025);
#: Qwen's are none of them. Adapters may add 256 tokens there (`lora_extra_vocab_size`).
EMBEDDING_ADAPTERS, ADDED_TOKENS = frozenset({"llama", "mistral", "mixtral"}), 256
#: Prompt tokens per output token if nothing else is known (ShareGPT).
PROMPT_SHARE = 223.0 / 197.0


@dataclass(frozen=True)
class GpuEngine:
    """vLLM with `model` on one `device`, as measured (Llama-3.1-8B on an H100 with 64 GB) or priced by `armillary.llm`."""

    model: str | Model = "llama-3.1-8b"
    device: str = "h100-64"
    #: Constants of the twin that were fitted to runs of this engine (`measured.fit_twin`).
    fitted: TwinModel | None = None

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.model if isinstance(self.model, str) else self.model.name

    @property
    def measured(self) -> bool:
        """Whether its constants come from measured runs."""
        from .measured import DEVICE, MODEL

        return (self.model, self.device) == (MODEL, DEVICE)

    def kv_tokens(self, slots: int, max_rank: int) -> int:
        """Returns tokens of KV left beside the weights and `slots` for adapters; 0 where the engine would not start."""
        return _kv_tokens(self, slots, max_rank)

    def most_slots(self, max_rank: int) -> int:
        """Returns the most slots with which it starts; 0: none."""
        return _most_slots(self, max_rank)

    def slot_choices(self, adapters: int, max_rank: int) -> list[int]:
        """Returns the numbers of slots worth trying for so many adapters: those that start, up to the first that holds all."""
        most = self.most_slots(max_rank)
        enough = [s for s in SLOTS if s < adapters]
        return [s for s in dict.fromkeys((*enough, adapters)) if s <= most]

    def replica(self, slots: int, max_rank: int, adapters: int | None = None) -> Replica:
        """Returns the engine in the ground simulator, which serves so many adapters; by default many more than it has slots."""
        from armillary.llm import Replica

        blocks = self.kv_tokens(slots, max_rank) // 16
        if not blocks:
            raise InputError(f"{self.name} on {self.device}: {slots} slots for adapters of rank {max_rank} leave too little KV to start")
        return Replica(
            self.model, self.device, max_seqs=MAX_SEQS, slots=slots, max_rank=max_rank, blocks=blocks, prefix_cache=False,
            cost=_cost(self, 1.0 if adapters is None else max(0.0, 1.0 - slots / adapters)),
        )  # fmt: skip

    def twin(self, slots: int, max_rank: int) -> Twin:
        """Returns the engine's twin."""
        from .twin import Twin

        tokens = self.kv_tokens(slots, max_rank)
        if not tokens:
            raise InputError(f"{self.name} on {self.device}: {slots} slots for adapters of rank {max_rank} leave too little KV to start")
        return Twin(self.twin_model(), tokens, slots, max_rank, max_seqs=MAX_SEQS)

    def twin_model(self) -> TwinModel:
        """Returns the twin's constants: those given, those of the measured rows, or from the iterations that the simulator would price."""
        return self.fitted or _twin_model(self)

    def peak_tokens_per_s(self) -> float:
        """Returns the prompt and output tokens per second with all KV in use and one adapter, as a data sheet would promise."""
        m = self.twin_model()
        running = self.kv_tokens(1, 8) / (223.0 + 0.5 * 197.0)
        return 1e3 * running * (1 + PROMPT_SHARE) / (m.c0 + m.c2 + (m.c1 + m.c3 + m.c4 * PROMPT_SHARE) * running)


def slot_bytes(model: Model, rank: int) -> float:
    """Returns the bytes of a slot for adapters up to `rank` in vLLM (bf16).

    A slot holds rank·Σ(inputs + outputs) numbers for the matrices of the layers. Where vLLM lets adapters change embeddings and head, it
    also holds rank·2·(V + 256 + d) numbers for the two tables of V tokens and d features, and three tables of 256 added tokens. With that,
    the KV tokens that vLLM reported for Llama-3.1-8B come out within 0.2 % for 15 of 18 settings and within 1.3 % for the others.
    """
    from armillary.llm.cost.memory import slot_bytes as layers_bytes

    own = layers_bytes(model, rank)
    if model.family not in EMBEDDING_ADAPTERS:
        return own
    return own + 2.0 * (rank * 2 * (model.vocab + ADDED_TOKENS + model.hidden) + 3 * ADDED_TOKENS * model.hidden)


@functools.cache
def _reserve(model: str | Model, device: str) -> float:
    """Returns the bytes that the engine reserves: the median over vLLM's reported KV tokens, and elsewhere the simulator's default."""
    from armillary.llm import Model
    from armillary.llm.cost.counts import kv_bytes_per_token
    from armillary.llm.cost.device import chip
    from armillary.llm.serving.replica import Replica

    from .measured import DEVICE, KV_TOKENS, MODEL

    if (model, device) != (MODEL, DEVICE):
        return float(Replica(model, device, blocks=1).reserve_bytes)
    shape = Model.preset(MODEL)
    free = 0.9 * chip(device).memory - shape.weight_bytes()
    spent = [n * kv_bytes_per_token(shape) + slots * slot_bytes(shape, rank) for (rank, slots), n in KV_TOKENS.items()]
    return float(free - np.median(spent))


@functools.lru_cache(maxsize=4096)
def _kv_tokens(engine: GpuEngine, slots: int, max_rank: int) -> int:
    from armillary.llm import Model, Replica

    if not 1 <= max_rank <= 512 or slots < 1:
        raise InputError(f"slots, max_rank: found {slots}, {max_rank}; expected at least 1 slot and a rank from 1 to 512")
    shape = Model.preset(engine.model) if isinstance(engine.model, str) else engine.model
    reserve = _reserve(engine.model, engine.device) + slots * slot_bytes(shape, max_rank)
    try:
        found = Replica(engine.model, engine.device, reserve_bytes=reserve).kv_blocks()
    except InputError as refused:
        if "tokens of KV are left" in str(refused):
            return 0
        raise
    return 16 * found


@functools.lru_cache(maxsize=512)
def _most_slots(engine: GpuEngine, max_rank: int) -> int:
    low, high = 0, 1
    while high <= 4096 and engine.kv_tokens(high, max_rank):
        low, high = high, 2 * high
    while high - low > 1:
        mid = (low + high) // 2
        low, high = (mid, high) if engine.kv_tokens(mid, max_rank) else (low, mid)
    return low


#: Milliseconds of an iteration beyond the operators of `StepCost`: fixed, per running request, per adapter, per adapter and new token,
#: and per waiting request that is passed over. They come from `fit_constants` on the twelve rows of `measured.split`.
FITTED_MS = (2.394001, 8.909954e-3, 0.5033772, 2.839733e-4, 6.076933e-4)
#: The twin's c0 to c4 and its time per waiting request that is passed over, from `TwinModel.fit` on the same rows.
TWIN_MS = (13.50916, 5.718498e-2, 0.4705257, 7.641811e-4, 2.654554e-2, 5.836317e-4)


def fit_constants(rounds: int = 3) -> tuple[float, float, float, float, float]:
    """Fits `FITTED_MS` again; each round simulates the twelve rows and takes a minute."""
    from dataclasses import replace

    from armillary.llm import StepCost

    from .measured import DEVICE, MODEL, Row, fit_step, replica, simulate, split

    chosen, cost = split()[0], StepCost.build(MODEL, DEVICE)
    table = cost.arrays()

    def known(row: Row, running: float, tokens: float) -> float:
        body = np.interp(tokens, table.tokens, table.body_s) + np.interp(running, table.tokens, table.head_s)
        return 1e3 * float(body + table.context_s * running * (row.mean_in + 0.5 * row.mean_out))

    return fit_step(
        chosen, known, per_token=True, rounds=rounds,
        simulate=lambda c: [
            simulate(row, engine=replace(replica(row.slots), cost=_priced(GpuEngine(), c, row.passed_over))) for row in chosen
        ],
    )  # fmt: skip


@functools.cache
def _cost(engine: GpuEngine, passed_over: float = 1.0) -> Priced:
    return _priced(engine, FITTED_MS, passed_over)


def _priced(engine: GpuEngine, constants: tuple[float, ...], passed_over: float = 1.0) -> Priced:
    """Returns what an iteration costs in the ground simulator: the operators of `StepCost`, and the host, requests and adapters as fitted.

    `passed_over` is the share of waiting requests that the engine looks at in vain, because their adapter has no slot. Another model or
    device keeps those constants.
    """
    from armillary.llm import StepCost

    one, running, adapter, both, waiting = (x / 1e3 for x in constants)
    table = StepCost.build(engine.model, engine.device).arrays()
    return Priced(table._replace(host_s=one, running_s=running, adapter_s=adapter, adapter_token_s=both, waiting_s=waiting * passed_over))


@dataclass(frozen=True)
class Priced:
    """An iteration's cost as arrays."""

    table: CostArrays

    def arrays(self) -> CostArrays:
        """Returns the numbers for the compiled loop."""
        return self.table


@functools.cache
def _twin_model(engine: GpuEngine) -> TwinModel:
    from .twin import TwinModel

    if engine.measured:
        return TwinModel(*TWIN_MS[:5], (0.0, 0.0, TWIN_MS[5], -TWIN_MS[5]))
    t = _cost(engine).arrays()
    c4 = 1e3 * float(np.interp(2048, t.tokens, t.body_s) - np.interp(512, t.tokens, t.body_s)) / 1536
    points = [(b, a) for b in (1, 8, 32, 128, 256, 512) for a in (1, 8, 32, 128) if a <= b]
    terms, seconds = [], []
    for b, a in points:
        tokens = b * (1 + PROMPT_SHARE)
        body = np.interp(tokens, t.tokens, t.body_s) + np.interp(b, t.tokens, t.head_s)
        context = t.context_s * b * (223 + 98)
        seconds.append(
            body - c4 / 1e3 * (tokens - b) + context + t.adapter_s * a + t.adapter_token_s * a * tokens + t.host_s + t.running_s * b
        )
        terms.append((1.0, b, a, a * b))
    weight = 1.0 / np.asarray(seconds)
    from scipy.optimize import nnls

    found, _ = nnls(np.asarray(terms) * weight[:, None], np.ones(len(points)))
    c = [float(x) * 1e3 for x in found]
    return TwinModel(c[0], c[1], c[2], c[3], c4, (0.0, 0.0, 1e3 * t.waiting_s, -1e3 * t.waiting_s), engine.name)
