"""A plan assigns layers to devices with bits, an order and micro-batches, and can be exported in the formats of other programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from armillary.errors import InputError, unknown

from ..pricing.layer_cost import GROUP, cache_bytes, embedding_seconds, head_seconds, layer_bytes, once_bytes, temporary_bytes
from ..workload import Device, OfflineWork
from .problem import Choice, DoesNotFit, Problem

if TYPE_CHECKING:
    import polars

    from ..simulation.pipeline import Ran

#: Share of a device's memory that is used, and bytes of context and allocator, as published.
USED, RESERVED = 0.95, 1.93e9
#: Names of a model's modules in Transformers: the prefix of a layer's number, and the modules that exist once.
MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "opt": (
        "model.decoder.layers",
        ("model.decoder.embed_tokens", "model.decoder.embed_positions", "model.decoder.final_layer_norm", "lm_head"),
    ),
    "gpt2": ("transformer.h", ("transformer.wte", "transformer.wpe", "transformer.ln_f", "lm_head")),
    "gpt_neox": ("gpt_neox.layers", ("gpt_neox.embed_in", "gpt_neox.final_layer_norm", "embed_out")),
    "falcon": ("transformer.h", ("transformer.word_embeddings", "transformer.ln_f", "lm_head")),
    "phi": ("model.layers", ("model.embed_tokens", "model.final_layernorm", "lm_head")),
}  # fmt: skip
USUAL = ("model.layers", ("model.embed_tokens", "model.norm", "lm_head"))


@dataclass(frozen=True)
class Stage:
    """Layers from `first` to before `last` on a device with their bits, and the shares of weights and of cache that stay on the host."""

    device: Device
    first: int
    last: int
    bits: tuple[int, ...]
    weights_on_host: float = 0.0
    cache_on_host: float = 0.0

    def __len__(self) -> int:
        return self.last - self.first


@dataclass(frozen=True)
class Plan:
    """Stages in pipeline order, the sequences per prefill and per decode micro-batch, and the sequences that run together.

    `batch` is smaller than that of the work if not all sequences fit. `predicted_s` is the planner's own figure; `simulate()` judges it.
    """

    work: OfflineWork
    stages: tuple[Stage, ...]
    prefill_batch: int
    decode_batch: int
    batch: int
    predicted_s: float = 0.0
    solver: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def layer_bits(self) -> tuple[int, ...]:
        """The bits of every layer, from first to last."""
        return tuple(b for stage in self.stages for b in stage.bits)

    @property
    def quality_loss(self) -> float:
        """Σω."""
        places = [self.work.bits.index(b) for b in self.layer_bits]
        return float(self.work.omegas[np.arange(len(places)), places].sum())

    def check(self) -> None:
        """Raises an error unless every layer appears once and in order and every device can hold what it is given."""
        model, longest = self.work.model, self.work.longest
        if [s.first for s in self.stages] != [0, *(s.last for s in self.stages[:-1])] or self.stages[-1].last != model.layers:
            raise InputError("a plan whose stages do not follow each other from the first layer to the last")
        kinds = [kind for kind, count in model.kinds for _ in range(count)]
        tokens = self.batch * (longest.prompt + longest.output)
        for number, stage in enumerate(self.stages):
            weights = sum(layer_bytes(model, kinds[stage.first + k], b) for k, b in enumerate(stage.bits))
            held = weights * (1 - stage.weights_on_host) + len(stage) * cache_bytes(model, tokens) * (1 - stage.cache_on_host)
            budget = budget_of(self.work, stage.device, number == 0, self.prefill_batch)
            if stage.weights_on_host:
                # The current layer and the next one are on the device as a whole.
                held += 2 * max(layer_bytes(model, kinds[stage.first + k], b) for k, b in enumerate(stage.bits)) * stage.weights_on_host
            if held > budget * (1 + 1e-9):
                raise DoesNotFit(
                    f"device {stage.device.number} ({stage.device.kind}) would hold {held / 1e9:.2f} GB of {budget / 1e9:.2f} GB"
                )

    def simulate(self) -> Ran:
        """Simulates the plan event by event; see `pipeline.run`."""
        from ..simulation.pipeline import run

        return run(self)

    def table(self) -> polars.DataFrame:
        """Returns one row per stage with its device, layers, bits and GB held."""
        import polars as pl

        rows = []
        for number, stage in enumerate(self.stages):
            bits = sorted(set(stage.bits), reverse=True)
            rows.append({
                "stage": number, "device": stage.device.number, "kind": stage.device.kind, "place": stage.device.place,
                "layers": f"{stage.first}-{stage.last - 1}", "count": len(stage),
                "bits": ", ".join(f"{stage.bits.count(b)} x {b}" for b in bits),
            })  # fmt: skip
        return pl.DataFrame(rows)

    def device_map(self) -> dict[str, int]:
        """Returns Hugging Face's `device_map` of module names to device numbers; embeddings, last norm and head are on the first device."""
        layers, once = MODULES.get(self.work.model.family, USUAL)
        found = dict.fromkeys(once, self.stages[0].device.number)
        for stage in self.stages:
            found.update({f"{layers}.{i}": stage.device.number for i in range(stage.first, stage.last)})
        return found

    def bits(self, style: Literal["llm-compressor", "gptq"] = "llm-compressor") -> dict[str, Any]:
        """Returns the precisions as a recipe: llm-compressor's `config_groups`, or GPTQModel's `dynamic` rules."""
        layers, _ = MODULES.get(self.work.model.family, USUAL)
        plain = layers.replace(".", r"\.")
        by_bits: dict[int, list[int]] = {}
        for i, b in enumerate(self.layer_bits):
            by_bits.setdefault(b, []).append(i)
        if style == "gptq":
            usual = max((b for b in by_bits if b < 16), key=lambda b: len(by_bits[b]), default=16)
            rules: dict[str, dict[str, int]] = {}
            for b, numbers in by_bits.items():
                if b != usual:
                    chosen = rf"{plain}\.({'|'.join(map(str, numbers))})\..*"
                    rules[f"-:{chosen}" if b == 16 else f"+:{chosen}"] = {} if b == 16 else {"bits": b, "group_size": _group(b)}
            return {"bits": usual, "group_size": _group(usual), "sym": True, "dynamic": rules}
        if style != "llm-compressor":
            raise unknown("style", str(style), ("llm-compressor", "gptq"))
        groups = {}
        for b, numbers in sorted(by_bits.items()):
            if b < 16:
                weights = {"num_bits": b, "type": "int", "symmetric": True, "strategy": "group" if b <= 4 else "channel"}
                groups[f"bits_{b}"] = {
                    "targets": [rf"re:{plain}\.({'|'.join(map(str, numbers))})\..*(proj|fc\d|dense.*)$"],
                    "weights": weights | ({"group_size": GROUP} if b <= 4 else {}),
                }
        return {"config_groups": groups, "ignore": ["lm_head"]}

    def vllm_pp(self) -> str:
        """Returns the partition as vLLM's environment variable."""
        return "VLLM_PP_LAYER_PARTITION=" + ",".join(str(len(stage)) for stage in self.stages)


def _group(bits: int) -> int:
    return GROUP if bits <= 4 else -1


def budget_of(work: OfflineWork, device: Device, first: bool, prefill_batch: int) -> float:
    """Returns the bytes for layers and cache: 0.95 of the memory less 1.93 GB and temporary data, on the first less embeddings and head."""
    model, longest = work.model, work.longest
    return USED * device.chip.memory - RESERVED - temporary_bytes(model, prefill_batch, longest.prompt) - first * once_bytes(model)


def problem_of(
    work: OfflineWork, order: Sequence[Device], prefill_batch: int, decode_batch: int, *, batch: int | None = None, group: int = 1,
    released: bool = False,
) -> Problem:  # fmt: skip
    """Returns the arrays of one order and one pair of micro-batches; `group` consecutive layers count as one."""
    model, batch = work.model, batch or work.batch
    usual, longest = work.usual, work.longest
    bits, layers = work.bits, model.layers
    tokens = batch * (longest.prompt + longest.output)
    memory, prefill = np.empty((len(model.kinds), len(bits))), np.empty((len(model.kinds), len(order), len(bits)))
    decode, past = np.empty_like(prefill), usual.prompt + max(1, usual.output // 2)
    for k, (kind, _) in enumerate(model.kinds):
        for b, bit in enumerate(bits):
            memory[k, b] = layer_bytes(model, kind, bit) + cache_bytes(model, tokens)
            for j, device in enumerate(order):
                prefill[k, j, b] = work.latency.seconds(device.kind, k, bit, prefill_batch, usual.prompt, 0)
                decode[k, j, b] = work.latency.seconds(device.kind, k, bit, decode_batch, 1, past)
    kinds = list(work.kinds)
    starts = np.arange(0, layers, group)
    first = order[0].chip
    once_prefill, once_decode = np.zeros(len(order)), np.zeros(len(order))
    once_prefill[0] = embedding_seconds(model, first, prefill_batch * usual.prompt)
    once_decode[0] = embedding_seconds(model, first, decode_batch) + head_seconds(model, first, decode_batch)
    return Problem(
        bits,
        np.add.reduceat(memory[kinds], starts, axis=0),
        np.array([budget_of(work, d, j == 0, prefill_batch) for j, d in enumerate(order)]),
        np.add.reduceat(prefill[kinds], starts, axis=0),
        np.add.reduceat(decode[kinds], starts, axis=0),
        np.add.reduceat(work.omegas, starts, axis=0),
        -(-batch // prefill_batch),
        -(-batch // decode_batch),
        usual.output,
        sends(work, order, 2.0 * model.hidden * prefill_batch * usual.prompt, 2.0 * model.hidden * prefill_batch),
        sends(work, order, 2.0 * model.hidden * decode_batch, 2.0 * model.hidden * decode_batch),
        once_prefill,
        once_decode,
        tuple(f"{d.number} ({d.kind})" for d in order),
        released,
    )


def sends(work: OfflineWork, order: Sequence[Device], nbytes: float, back: float) -> Any:
    """Returns the seconds to send `nbytes` from each device to the next, and `back` bytes from the last to the first."""
    found = np.zeros(len(order))
    if len(order) > 1:
        for j, device in enumerate(order):
            latency, per_byte = work.cluster.alpha_beta(device.place, order[(j + 1) % len(order)].place)
            found[j] = latency + per_byte * (back if j == len(order) - 1 else nbytes)
    return found


def plan_of(
    work: OfflineWork, order: Sequence[Device], choice: Choice, prefill_batch: int, decode_batch: int, *, batch: int | None = None,
    group: int = 1, predicted_s: float = 0.0, solver: str = "", notes: Sequence[str] = (),
) -> Plan:  # fmt: skip
    """Returns the plan that a choice makes; devices without layers are left out."""
    layers = work.model.layers
    device, bits = (np.repeat(x, group)[:layers] for x in (choice.device, choice.bits))
    stages = []
    for j, each in enumerate(order):
        mine = np.flatnonzero(device == j)
        if len(mine):
            stages.append(Stage(each, int(mine[0]), int(mine[-1]) + 1, tuple(work.bits[b] for b in bits[mine])))
    whole = batch or work.batch
    turns = len(work.batches) * -(-work.batch // whole)
    return Plan(work, tuple(stages), prefill_batch, decode_batch, whole, predicted_s * turns, solver, (*work.notes, *notes))


T = TypeVar("T")


def halved_until_it_fits(work: OfflineWork, make: Callable[[int], T]) -> T:
    """Calls `make` with the batch, halving it until something fits; this is our design, for every technique."""
    batch, first = work.batch, None
    while True:
        try:
            return make(batch)
        except DoesNotFit as problem:
            first = first or problem
            if batch == 1:
                raise first from None
            batch = -(-batch // 2)
