"""Offline work consists of a model, a pile of prompts and the available devices, built in or from a user's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.cluster import Cluster, find
from armillary.errors import InputError, one_line
from armillary.files import read_json_lines
from armillary.llm import Chip, Model, chip

from .planning.problem import checked_bits
from .pricing.latency_model import LatencyModel, profiled
from .quality.indicator import OmegaTable, stand_in_omega

Ints = npt.NDArray[np.int64]
MOST_PROMPTS, MOST_TOKENS, MOST_LINE = 1_000_000, 10_000_000, 16 << 20
BITS = (3, 4, 8, 16)
#: Above this number of layers, two consecutive ones share a device and bits in a program by default.
UNGROUPED = 40


def _opt(hidden: int, layers: int, heads: int) -> dict[str, Any]:
    return {
        "model_type": "opt", "torch_dtype": "float16", "hidden_size": hidden, "ffn_dim": 4 * hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "word_embed_proj_dim": hidden, "max_position_embeddings": 2048, "vocab_size": 50272,
        "do_layer_norm_before": True,
    }  # fmt: skip


#: Models of the papers that are no preset of `armillary.llm`. BLOOM has GPT-NeoX's tensors with a tied head; its ALiBi is priced as rotary.
CONFIGS: dict[str, dict[str, Any]] = {
    "opt-13b": _opt(5120, 40, 40),
    "opt-30b": _opt(7168, 48, 56),
    "opt-66b": _opt(9216, 64, 72),
    "bloom-176b": {
        "model_type": "gpt_neox", "torch_dtype": "float16", "hidden_size": 14336, "intermediate_size": 57344, "num_hidden_layers": 70,
        "num_attention_heads": 112, "vocab_size": 250880, "max_position_embeddings": 2048, "tie_word_embeddings": True,
    },
    # As wide as OPT-66B and as deep as the model whose perplexity is measured.
    "wide-8": _opt(9216, 8, 72),
}  # fmt: skip


def model_of(name: str | Path | Model | Mapping[str, Any]) -> Model:
    """Returns a model of the papers, a preset, a `config.json` (or its folder or content), or the given model unchanged."""
    if isinstance(name, Model):
        return name
    if isinstance(name, Mapping):
        return Model.from_config(name)
    if str(name) in CONFIGS:
        return Model.from_config(CONFIGS[str(name)], name=str(name))
    return Model.find(name)


@dataclass(frozen=True)
class Device:
    """One device of a cluster, with its number, place, chip and host."""

    number: int
    place: str
    chip: Chip
    host: str

    @property
    def kind(self) -> str:
        """The device's model."""
        return self.chip.name


def devices_of(cluster: Cluster | str | Path) -> tuple[Device, ...]:
    """Returns every GPU and NPU of a cluster, node by node."""
    found: list[Device] = []
    there, node = find(str(cluster)) if isinstance(cluster, str | Path) else cluster, 0
    for group in there.groups:
        for _ in range(group.count):
            at = 0
            for device in group.node.devices:
                for _ in range(device.count):
                    if device.kind in ("gpu", "npu"):
                        found.append(Device(len(found), f"n{node}/device:{at}", chip(device), f"n{node}/socket:0"))
                    at += 1
            node += 1
    if not found:
        raise InputError(f"{there.name} has no GPU or NPU", where="cluster")
    return tuple(found)


class Batch(NamedTuple):
    """Sequences that run together, padded to `prompt` tokens, with `output` tokens generated for each."""

    sequences: int
    prompt: int
    output: int


@dataclass(frozen=True)
class OfflineWork:
    """A model, prompts and outputs (tokens), sequences per batch, devices, and the largest loss of quality (Σω; None allows any)."""

    model: Model
    cluster: Cluster
    prompt: Ints
    output: Ints
    batch: int
    omega: OmegaTable
    quality: float | None = None
    bits: tuple[int, ...] = BITS
    profile: LatencyModel | None = None
    #: The least number of consecutive layers that share a device and bits; more give a coarser plan sooner.
    group: int = 1
    notes: tuple[str, ...] = field(default=())

    @staticmethod
    def of(
        model: str | Path | Model | Mapping[str, Any], cluster: Cluster | str | Path, *, prompt: Any = 512, output: Any = 100,
        batch: int = 32, omega: OmegaTable | None = None, quality: float | None = None, bits: Sequence[int] = BITS,
        profile: LatencyModel | None = None, group: int = 1, notes: Sequence[str] = (),
    ) -> OfflineWork:  # fmt: skip
        """Checks and returns the work; `prompt` and `output` are one number for a batch of equal sequences, or one for each prompt."""
        shape = model_of(model)
        there = find(str(cluster)) if isinstance(cluster, str | Path) else cluster
        if not 1 <= batch <= MOST_PROMPTS:
            raise InputError(f"batch: found {batch}; expected 1 to {MOST_PROMPTS:,} sequences")
        prompts, outputs = (np.atleast_1d(np.asarray(x, np.int64)) for x in (prompt, output))
        if len(prompts) == 1 and len(outputs) == 1:
            prompts, outputs = np.repeat(prompts, batch), np.repeat(outputs, batch)
        prompts, outputs = np.broadcast_arrays(prompts, outputs) if 1 in (len(prompts), len(outputs)) else (prompts, outputs)
        if len(prompts) != len(outputs):
            raise InputError(f"{len(prompts)} prompts and {len(outputs)} outputs; expected as many")
        for name, values in (("prompt", prompts), ("output", outputs)):
            if values.min() < 1 or values.max() > MOST_TOKENS:
                raise InputError(f"{name}: found {values.min()} to {values.max()} tokens; expected 1 to {MOST_TOKENS:,}")
        wanted = checked_bits(bits)
        if not shape.layers:
            raise InputError(f"{shape.name} has no layers")
        notes = tuple(notes)
        if omega is None:
            omega = stand_in_omega(shape.layers, wanted)
            notes += ("no omega table: quality is a stand-in, the depth profile of a small trained model",)
        if omega.layers != shape.layers:
            raise InputError(f"omega for {omega.layers} layers; {shape.name} has {shape.layers}", where=omega.source or None)
        return OfflineWork(shape, there, prompts, outputs, min(batch, len(prompts)), omega, quality, wanted, profile, group, notes)

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """The cluster's devices."""
        return devices_of(self.cluster)

    @cached_property
    def batches(self) -> tuple[Batch, ...]:
        """Batches of prompts of similar length, longest first, each padded to its longest."""
        order = np.lexsort((-self.output, -self.prompt))
        found = []
        for start in range(0, len(order), self.batch):
            rows = order[start : start + self.batch]
            found.append(Batch(len(rows), int(self.prompt[rows].max()), int(self.output[rows].max())))
        return tuple(found)

    @property
    def tokens(self) -> int:
        """The number of output tokens requested."""
        return int(self.output.sum())

    @property
    def longest(self) -> Batch:
        """The batch that memory must hold: a full one at the longest prompt and the longest output."""
        return Batch(self.batch, max(b.prompt for b in self.batches), max(b.output for b in self.batches))

    @property
    def usual(self) -> Batch:
        """The batch for which time is planned: one with the mean padded lengths."""
        prompt, output = (round(float(np.mean(lengths))) for lengths in list(zip(*self.batches, strict=True))[1:])
        return Batch(self.batch, prompt, output)

    @cached_property
    def latency(self) -> LatencyModel:
        """The planner's latency model: the user's profile, or one fitted to the operators of `armillary.llm`."""
        if self.profile is not None:
            return self.profile
        return profiled(self.model, [d.chip for d in self.devices], self.bits, self.batch, self.usual.prompt, self.usual.output)

    @cached_property
    def omegas(self) -> npt.NDArray[np.float64]:
        """ω [layers, bits]."""
        return self.omega.of(self.bits)

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """The kind of each layer, as an index into the model's kinds."""
        return tuple(k for k, (_, count) in enumerate(self.model.kinds) for _ in range(count))


def read_prompts(path: str | Path, tokens_per_character: float = 0.25) -> tuple[Ints, Ints, tuple[str, ...]]:
    """Reads (prompt tokens, output tokens, notes) from JSONL: `{"prompt_tokens": …, "max_tokens": …}` or OpenAI's batch format.

    A line of a batch has custom_id, method, url and body. Its prompt is text, so its tokens are estimated at four characters each, which
    a note says.
    """
    at = Path(path)
    prompts: list[int] = []
    outputs: list[int] = []
    notes: set[str] = set()
    prompt: Any
    asked: Any
    for number, row in read_json_lines(at, longest=MOST_LINE, most=MOST_PROMPTS):
        where = f"{at}:{number}"
        if "body" in row or "custom_id" in row:
            body = row.get("body")
            if not isinstance(body, dict) or not isinstance(row.get("custom_id"), str):
                raise InputError("expected custom_id, method, url and a body that is an object", where=where)
            prompt, asked = _text_tokens(body, tokens_per_character, where), body.get("max_tokens", body.get("max_completion_tokens"))
            notes.add("prompt tokens are estimated at four characters each")
            if asked is None:
                asked = 100
                notes.add("where max_tokens is not given, 100 tokens are made")
        else:
            prompt, asked = row.get("prompt_tokens"), row.get("max_tokens")
        for name, value in (("prompt_tokens", prompt), ("max_tokens", asked)):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_TOKENS:
                raise InputError(f'key "{name}": found {one_line(repr(value), 40)}; expected 1 to {MOST_TOKENS:,} tokens', where=where)
        prompts.append(prompt)
        outputs.append(asked)
    if not prompts:
        raise InputError("found no prompt; expected at least one", where=str(at))
    return np.asarray(prompts, np.int64), np.asarray(outputs, np.int64), tuple(sorted(notes))


def _text_tokens(body: Mapping[str, Any], rate: float, where: str) -> int:
    said: list[str] = []
    messages = body.get("messages")
    if isinstance(messages, list):
        for message in messages:
            content = message.get("content") if isinstance(message, dict) else None
            parts = content if isinstance(content, list) else [{"text": content}]
            said += [p["text"] for p in parts if isinstance(p, dict) and isinstance(p.get("text"), str)]
    else:
        prompt = body.get("prompt", body.get("input"))
        said = [prompt] if isinstance(prompt, str) else [p for p in prompt if isinstance(p, str)] if isinstance(prompt, list) else []
    if not said:
        raise InputError("body: found no messages and no prompt", where=where)
    return max(1, round(rate * sum(map(len, said))))
