"""What a transformer is made of: every tensor of every layer, from its Hugging Face `config.json`.

A `Model` consists of runs of equal layers and of a few tensors that exist once; a layer is a tuple of `Tensor`s. Parameters, flops, bytes
and GEMM shapes are all sums over the same tensors, so they cannot disagree. Counts are exact integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from armillary.errors import InputError, unknown

Part = Literal["embedding", "attention", "mlp", "norm", "router", "head"]
PARTS: tuple[Part, ...] = ("embedding", "attention", "mlp", "norm", "router", "head")
Split = Literal["columns", "rows", "whole", "kv", "fused", "vocabulary"]

#: Bytes per number of each type.
WIDTH = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
PRESETS = Path(__file__).parents[1] / "presets"


@dataclass(frozen=True)
class Tensor:
    """A weight: `copies` matrices of `inputs` × `outputs` (with `bias` numbers each), of which a token uses `used`.

    `matmul` is false for a tensor that is looked up, added or multiplied element by element. A `tied` tensor takes part in the computation
    but is stored elsewhere. `role` names the operator that it belongs to (qkv, o, gate_up, down, …); `split` says how tensor parallelism
    cuts it: by outputs (columns), by inputs (rows), by key-value heads (kv), by heads and key-value heads (fused), by token ids
    (vocabulary), or not at all (whole).
    """

    name: str
    part: Part
    role: str
    inputs: int
    outputs: int
    bias: int = 0
    copies: int = 1
    used: int = 1
    matmul: bool = True
    split: Split = "whole"
    tied: bool = False

    @property
    def params(self) -> int:
        """The number of stored parameters."""
        return 0 if self.tied else self.copies * (self.inputs * self.outputs + self.bias)

    @property
    def active(self) -> int:
        """The number of stored parameters in the copies that one token uses."""
        return 0 if self.tied else self.used * (self.inputs * self.outputs + self.bias)

    @property
    def multiplied(self) -> int:
        """The number of weights that one token is multiplied with, without biases."""
        return self.used * self.inputs * self.outputs if self.matmul else 0


@dataclass(frozen=True)
class Layer:
    """One kind of layer; `window` is the reach of its attention in tokens, or None for all tokens."""

    attention: Literal["full", "window"]
    mlp: Literal["dense", "moe"]
    tensors: tuple[Tensor, ...]
    window: int | None = None

    def role(self, name: str) -> tuple[Tensor, ...]:
        """The tensors of one operator."""
        return tuple(t for t in self.tensors if t.role == name)


@dataclass(frozen=True)
class Moe:
    """A mixture of `experts` experts of width `ffn`, with `top_k` experts per token and shared experts of total width `shared_ffn` (0 means
    none).
    """

    experts: int
    top_k: int
    ffn: int
    shared_ffn: int = 0


@dataclass(frozen=True)
class Mla:
    """Multi-head latent attention: the ranks of the compressed query (None if uncompressed) and key-value, and the head widths."""

    q_rank: int | None
    kv_rank: int
    nope: int
    rope: int
    value: int


@dataclass(frozen=True)
class Quantised:
    """How matrices are stored: bits per weight, and the size of the group that shares a 2-byte scale and a zero point (0 means none)."""

    method: str
    bits: int
    group: int = 0
    head: bool = False
    experts_only: bool = False

    @property
    def width(self) -> float:
        """Bytes per weight, including scales."""
        if self.method == "mxfp4":
            return 0.5 + 1 / 32
        if self.bits == 8 or not self.group:
            return self.bits / 8
        return self.bits / 8 + (2 + self.bits / 8) / self.group


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters: `count` of them, of `rank`, on every tensor whose name ends in one of `targets`."""

    rank: int
    targets: tuple[str, ...] = ("q_proj", "v_proj")
    count: int = 1


@dataclass(frozen=True)
class Model:
    """The shapes of a transformer, made by `from_config` or `preset`. Two models are equal when every shape is equal."""

    name: str
    family: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    tied: bool
    gated: bool
    norm: Literal["rms", "layer"]
    #: Runs of equal layers, from first to last.
    kinds: tuple[tuple[Layer, int], ...]
    #: Tensors outside the layers: embeddings, last norm, head.
    once: tuple[Tensor, ...]
    #: The longest sequence in tokens; 0 where the file does not state it.
    max_length: int = 0
    causal: bool = True
    #: True for blocks with dropout, whose masks are kept for the backward pass.
    dropout: bool = False
    dtype: str = "bf16"
    moe: Moe | None = None
    mla: Mla | None = None
    quantised: Quantised | None = None
    lora: Lora | None = None

    @staticmethod
    def from_config(source: str | Path | Mapping[str, Any], *, assume: str | None = None, name: str | None = None) -> Model:
        """The model that a `config.json` (a path, or its content) describes.

        `assume="llama"` reads an unknown `model_type` as that family; otherwise an unknown type raises an `InputError` that names the known
        ones.
        """
        from armillary.llm.model.config import Config
        from armillary.llm.model.families import model_of

        return model_of(Config.read(source), assume=assume, name=name)

    @staticmethod
    def preset(name: str) -> Model:
        """A model that comes with the package: `Model.presets()` lists them."""
        if name not in Model.presets():
            raise unknown("model preset", name, Model.presets())
        return Model.from_config(PRESETS / "models" / f"{name}.json", name=name)

    @staticmethod
    def presets() -> tuple[str, ...]:
        """The names that `preset` accepts."""
        return tuple(sorted(path.stem for path in (PRESETS / "models").glob("*.json")))

    @staticmethod
    def find(name: str | Path) -> Model:
        """Finds a model by the name of a preset, by a `config.json`, or by a folder that holds one."""
        text = str(name)
        if text in Model.presets() or not (Path(text).exists() or Path(text).suffix or "/" in text):
            return Model.preset(text)
        path = Path(text)
        return Model.from_config(path / "config.json" if path.is_dir() else path)

    def __getstate__(self) -> dict[str, Any]:
        # Counts are not pickled; they are computed again in the other process.
        return {each.name: self.__dict__[each.name] for each in fields(self)}

    @cached_property
    def memo(self) -> dict[Any, Any]:
        """Counts of this model that are already known, so that each is computed once."""
        return {}

    @cached_property
    def layers(self) -> int:
        """The total number of layers."""
        return sum(count for _, count in self.kinds)

    def layer(self, index: int) -> Layer:
        """Layer `index`, from 0."""
        if 0 <= index < self.layers:
            for kind, count in self.kinds:
                if index < count:
                    return kind
                index -= count
        raise InputError(f"layer {index} does not exist; {self.name} has layers 0 to {self.layers - 1}")

    def runs(self, start: int = 0, stop: int | None = None) -> list[tuple[Layer, int]]:
        """The layers from `start` to before `stop` as runs of equal layers."""
        stop = self.layers if stop is None else stop
        found, at = [], 0
        for kind, count in self.kinds:
            inside = min(at + count, stop) - max(at, start)
            if inside > 0:
                found.append((kind, inside))
            at += count
        return found

    def _counts(self) -> Iterable[tuple[Tensor, int]]:
        for tensor in self.once:
            yield tensor, 1
        for kind, count in self.kinds:
            for tensor in kind.tensors:
                yield tensor, count

    @cached_property
    def _totals(self) -> tuple[int, int]:
        return sum(n * t.params for t, n in self._counts()), sum(n * t.active for t, n in self._counts())

    def params(self, active: bool = False) -> int:
        """The number of parameters without adapters; with `active`, only those that one token uses (embedding and head included)."""
        return self._totals[active]

    def params_by(self, part: str) -> int:
        """Parameters of one part: embedding, attention, mlp, norm, router or head. The parts add up to `params()`."""
        if part not in PARTS:
            raise unknown("part of a model", part, PARTS)
        return sum(n * t.params for t, n in self._counts() if t.part == part)

    @cached_property
    def matmul_params(self) -> int:
        """The number of weights that every token is multiplied with, without the head."""
        return sum(n * t.multiplied for t, n in self._counts() if t.part != "head")

    @cached_property
    def head_params(self) -> int:
        """The number of weights in the head that a token with logits is multiplied with."""
        return sum(n * t.multiplied for t, n in self._counts() if t.part == "head")

    @property
    def attention_widths(self) -> tuple[int, int]:
        """The width of a head's query and key, and the width of its value."""
        return (self.mla.nope + self.mla.rope, self.mla.value) if self.mla else (self.head_dim, self.head_dim)

    @cached_property
    def rotary(self) -> bool:
        """Whether queries and keys are rotated by their position; false where positions are learned vectors, or bias the scores (BLOOM)."""
        return self.family != "bloom" and not any(t.part == "embedding" and t.split == "whole" and not t.matmul for t in self.once)

    @property
    def kv_numbers(self) -> int:
        """How many numbers one layer caches per token."""
        return self.mla.kv_rank + self.mla.rope if self.mla else 2 * self.kv_heads * self.head_dim

    @cached_property
    def width(self) -> int:
        """Bytes per number that is not quantised."""
        return WIDTH[self.dtype]

    def tensor_width(self, tensor: Tensor) -> float:
        """Bytes per number of a tensor. Embeddings, norms, router and head stay in `dtype` unless the config says so."""
        q = self.quantised
        if q is None or not tensor.matmul or tensor.part == "router" or (tensor.part == "head" and not q.head):
            return self.width
        if q.experts_only and not tensor.role.startswith("expert"):
            return self.width
        return q.width

    def weight_bytes(self, tensors: Iterable[tuple[Tensor, int]] | None = None) -> float:
        """Bytes of the stored weights, or of the given (tensor, count) pairs; biases stay in `dtype`."""
        total = 0.0
        for t, n in self._counts() if tensors is None else tensors:
            if not t.tied:
                total += n * t.copies * (t.inputs * t.outputs * self.tensor_width(t) + t.bias * self.width)
        return total

    def with_lora(self, rank: int, targets: Iterable[str] = ("q_proj", "v_proj"), count: int = 1) -> Model:
        """This model with `count` adapters of `rank` on the named matrices."""
        wanted = tuple(targets)
        known = {t.name.rpartition(".")[2] for kind, _ in self.kinds for t in kind.tensors if t.matmul}
        for target in wanted:
            if target not in known:
                raise unknown("LoRA target", target, known, where=self.name)
        if not 1 <= rank <= 1 << 16 or count < 1:
            raise InputError(f"LoRA rank {rank}, {count} adapters; expected a rank of 1 to 65,536 and at least one adapter")
        return replace(self, lora=Lora(rank, wanted, count))

    def with_dtype(self, dtype: str) -> Model:
        """This model with its plain weights in another type: fp32, bf16, fp16, fp8 or int8."""
        if dtype not in WIDTH:
            raise unknown("dtype", dtype, WIDTH)
        return replace(self, dtype=dtype)

    def with_quantised(self, bits: int, group: int = 0, method: str = "weights") -> Model:
        """This model with its matrices stored in `bits` bits (4 or 8), with one scale per `group` weights."""
        if bits not in (4, 8) or group < 0:
            raise InputError(f"{bits} bits in groups of {group}; expected 4 or 8 bits, and a group of 0 or more")
        return replace(self, quantised=Quantised(method, bits, group))

    @cached_property
    def lora_reach(self) -> int:
        """Σ (inputs + outputs) over the matrices of an adapter in all layers and experts: its parameters per unit of rank."""
        if self.lora is None:
            return 0
        return sum(
            n * t.copies * (t.inputs + t.outputs)
            for kind, n in self.kinds
            for t in kind.tensors
            if t.matmul and t.name.rpartition(".")[2] in self.lora.targets
        )

    def lora_params(self) -> int:
        """Parameters of all adapters: count · rank · Σ (inputs + outputs)."""
        return self.lora.count * self.lora.rank * self.lora_reach if self.lora else 0
