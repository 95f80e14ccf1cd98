"""A decoder-only transformer that really runs here (PyTorch): Llama's block, with Mixtral's experts where the config has them.

It has RMSNorm, rotary positions (in Hugging Face's split halves), grouped queries and SwiGLU. Weights come from a Hugging Face folder
(`config.json` and `model.safetensors`) or from a seed. Keys and values are stored in blocks, as a serving engine keeps them
(`generation.Engine`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as fn

from armillary.arrays import aligned
from armillary.errors import InputError, one_line, unknown
from armillary.files import check_readable, read_json

#: Models that need no file, in the words of a config.json; the vocabulary is 256 bytes and a few marks.
BUILT_IN: dict[str, dict[str, Any]] = {
    "tiny-llama": {
        "model_type": "llama", "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 344, "vocab_size": 512, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
    },
    "tiny-moe": {
        "model_type": "mixtral", "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 344, "vocab_size": 512, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "max_position_embeddings": 2048,
        "tie_word_embeddings": False, "num_local_experts": 8, "num_experts_per_tok": 2,
    },
}  # fmt: skip
_KINDS = ("llama", "mistral", "mixtral", "qwen2")
_MOST_EXPERTS = 1 << 16
#: Bytes of the largest config.json.
_CONFIG_BYTES = 1 << 20


@dataclass(frozen=True)
class Shape:
    """The sizes that the forward pass needs."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    theta: float
    eps: float
    positions: int
    tied: bool
    experts: int = 0
    top_k: int = 0
    qkv_bias: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any], where: str = "config.json") -> Shape:
        """The shape that a config.json describes."""
        if not isinstance(config, Mapping):
            raise InputError("expected an object with keys such as hidden_size", where=where)
        kind = str(config.get("model_type", "llama"))
        if kind not in _KINDS:
            raise unknown("model_type", kind, _KINDS, where=where)
        from ..model.shapes import Model

        def number(table: Any, key: str, default: float, low: float, high: float) -> float:
            found = table.get(key) if isinstance(table, Mapping) else None
            found = default if found is None else found
            if isinstance(found, bool) or not isinstance(found, int | float) or not low <= found <= high:
                said = f"found {one_line(repr(found), 40)}; expected a number from {low:g} to {high:g}"
                raise InputError(f'key "{key}": {said}', where=where)
            return found

        model = Model.from_config(config)
        theta = number(config, "rope_theta", number(config.get("rope_parameters"), "rope_theta", 10000.0, 1e-6, 1e30), 1e-6, 1e30)
        experts = int(number(config, "num_local_experts", 0, 0, _MOST_EXPERTS))
        if model.head_dim % 2 or model.heads % model.kv_heads:
            said = f"found {model.heads} heads of {model.head_dim} values and {model.kv_heads} of keys"
            raise InputError(f"{said}; expected an even size and a whole number of heads per key", where=where)
        return cls(
            model.hidden, model.layers, model.heads, model.kv_heads, model.head_dim, model.ffn, model.vocab,
            float(theta), float(number(config, "rms_norm_eps", 1e-6, 0, 1)),
            int(number(config, "max_position_embeddings", 2048, 1, 1 << 31)), bool(config.get("tie_word_embeddings", False)),
            experts, int(number(config, "num_experts_per_tok", 0, 1, experts)) if experts else 0,
            kind == "qwen2",
        )  # fmt: skip

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """The name and shape of every weight, as they stand in model.safetensors."""
        out: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab, self.hidden), "model.norm.weight": (self.hidden,)}
        if not self.tied:
            out["lm_head.weight"] = (self.vocab, self.hidden)
        for i in range(self.layers):
            at = f"model.layers.{i}."
            wide, narrow = self.heads * self.head_dim, self.kv_heads * self.head_dim
            for name, rows in (("q_proj", wide), ("k_proj", narrow), ("v_proj", narrow)):
                out[f"{at}self_attn.{name}.weight"] = (rows, self.hidden)
                if self.qkv_bias:
                    out[f"{at}self_attn.{name}.bias"] = (rows,)
            out[f"{at}self_attn.o_proj.weight"] = (self.hidden, wide)
            out[f"{at}input_layernorm.weight"] = out[f"{at}post_attention_layernorm.weight"] = (self.hidden,)
            if self.experts:
                out[f"{at}block_sparse_moe.gate.weight"] = (self.experts, self.hidden)
                for e in range(self.experts):
                    expert = f"{at}block_sparse_moe.experts.{e}."
                    out[f"{expert}w1.weight"] = out[f"{expert}w3.weight"] = (self.ffn, self.hidden)
                    out[f"{expert}w2.weight"] = (self.hidden, self.ffn)
            else:
                out[f"{at}mlp.gate_proj.weight"] = out[f"{at}mlp.up_proj.weight"] = (self.ffn, self.hidden)
                out[f"{at}mlp.down_proj.weight"] = (self.hidden, self.ffn)
        return out


@dataclass(frozen=True)
class Lora:
    """An adapter: (A [rank, in], B [out, rank]) for each weight that it changes, already scaled."""

    name: str
    rank: int
    pairs: Mapping[str, tuple[Tensor, Tensor]]


@dataclass
class Batch:
    """Tokens of several sequences for one pass: sequence i has counts[i] new tokens after starts[i] tokens whose KV is cached."""

    ids: Tensor  # int64 [tokens]
    starts: list[int]
    counts: list[int]
    tables: list[list[int]]  # the blocks of each sequence, in order
    adapters: list[int] = field(default_factory=list)  # the number of each sequence's adapter, -1 for none


class Tiny:
    """A transformer with its weights. `weights` may be changed in place; they keep their names from model.safetensors."""

    def __init__(self, shape: Shape, weights: dict[str, Tensor], name: str = "tiny") -> None:
        if shape.layers * max(1, shape.experts) > len(weights):
            raise InputError(f"found {len(weights)} weights for {shape.layers} layers; expected several per layer", where=name)
        expected = shape.tensors()
        for key, size in expected.items():
            if key not in weights:
                raise InputError(f"no weight {key}", where=name)
            if tuple(weights[key].shape) != size:
                raise InputError(f"{key}: found shape {tuple(weights[key].shape)}; expected {size}", where=name)
        self.shape, self.name = shape, name
        # Weights from a file may begin anywhere in memory, but the products of a model must have the same bits wherever its weights lie.
        self.weights = {key: aligned(weights[key]) for key in expected}
        self.loras: list[Lora] = []
        #: Called with (layer, experts of the tokens [tokens, k]) after every routing, so that it can be profiled.
        self.on_routing: Callable[[int, Tensor], None] | None = None

    @classmethod
    def make(cls, name: str | Mapping[str, Any] = "tiny-llama", *, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tiny:
        """A model with random weights: a built-in one, or one of any config."""
        if isinstance(name, str) and name not in BUILT_IN:
            raise unknown("built-in model", name, BUILT_IN)
        config = BUILT_IN[name] if isinstance(name, str) else name
        shape = Shape.of(config)
        rng = torch.Generator().manual_seed(seed)
        weights = {}
        for key, size in shape.tensors().items():
            if len(size) == 1:
                weights[key] = torch.ones(size, dtype=dtype) if "norm" in key else torch.zeros(size, dtype=dtype)
            else:
                weights[key] = (torch.randn(size, generator=rng) / math.sqrt(size[-1])).to(dtype)
        return cls(shape, weights, name if isinstance(name, str) else "tiny")

    @classmethod
    def load(cls, folder: str | Path, *, dtype: torch.dtype | None = None, device: str = "cpu") -> Tiny:
        """Loads a model from a Hugging Face folder (config.json and *.safetensors); nothing is unpickled."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        at = Path(folder)
        files = sorted(at.glob("*.safetensors"))
        if not (at / "config.json").is_file() or not files:
            raise InputError("expected a folder with config.json and model.safetensors", where=str(folder))
        config = read_json(at / "config.json", limit=_CONFIG_BYTES)
        weights: dict[str, Tensor] = {}
        for file in files:
            check_readable(file)
            try:
                weights |= load_file(file, device=device)
            except (SafetensorError, OSError, ValueError, TypeError, KeyError, RuntimeError) as problem:
                raise InputError(f"not a safetensors file: {one_line(str(problem), 100)}", where=str(file)) from None
        if dtype is not None:
            weights = {key: value.to(dtype) for key, value in weights.items()}
        return cls(Shape.of(config, str(at / "config.json")), weights, at.name)

    def save(self, folder: str | Path) -> None:
        """Writes config.json and model.safetensors, which Transformers reads too."""
        from safetensors.torch import save_file

        at, s = Path(folder), self.shape
        at.mkdir(parents=True, exist_ok=True)
        config: dict[str, Any] = {
            "architectures": ["MixtralForCausalLM" if s.experts else "LlamaForCausalLM"], "model_type": "mixtral" if s.experts else "llama",
            "hidden_size": s.hidden, "num_hidden_layers": s.layers, "num_attention_heads": s.heads, "num_key_value_heads": s.kv_heads,
            "head_dim": s.head_dim, "intermediate_size": s.ffn, "vocab_size": s.vocab, "rope_theta": s.theta, "rms_norm_eps": s.eps,
            "max_position_embeddings": s.positions, "tie_word_embeddings": s.tied, "hidden_act": "silu", "torch_dtype": "float32",
        }  # fmt: skip
        if s.experts:
            config |= {"num_local_experts": s.experts, "num_experts_per_tok": s.top_k, "sliding_window": None}
        (at / "config.json").write_text(json.dumps(config, indent=1))
        save_file({key: value.contiguous() for key, value in self.weights.items()}, at / "model.safetensors")

    def add_lora(self, folder: str | Path) -> int:
        """Loads a PEFT adapter (adapter_config.json, adapter_model.safetensors); returns its number."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        at = Path(folder)
        config = read_json(at / "adapter_config.json", limit=_CONFIG_BYTES)
        check_readable(at / "adapter_model.safetensors")
        try:
            rank, alpha = int(config["r"]), float(config.get("lora_alpha", config["r"]))
            if rank < 1 or not math.isfinite(alpha):
                raise ValueError(f"found rank {rank} and alpha {alpha}")
            tensors = load_file(at / "adapter_model.safetensors")
        except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RuntimeError) as problem:
            raise InputError(f"not a PEFT adapter: {one_line(str(problem), 100)}", where=str(folder)) from None
        pairs: dict[str, tuple[Tensor, Tensor]] = {}
        like = next(iter(self.weights.values()))
        for key, a in tensors.items():
            if not key.endswith(".lora_A.weight"):
                continue
            target = key.removeprefix("base_model.model.").replace(".lora_A.weight", ".weight")
            b = tensors.get(key.replace("lora_A", "lora_B"))
            known = self.weights.get(target)
            if b is None or known is None or a.shape != (rank, known.shape[1]) or b.shape != (known.shape[0], rank):
                raise InputError(f"{key}: does not fit {target} of this model at rank {rank}", where=str(folder))
            pairs[target] = (aligned(a.to(like)), aligned((b * (alpha / rank)).to(like)))
        if not pairs:
            raise InputError("found no lora_A weights; expected at least one", where=str(folder))
        self.loras.append(Lora(at.name, rank, pairs))
        return len(self.loras) - 1

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.weights["model.embed_tokens.weight"].device

    def to(self, device: str) -> Tiny:
        """The same model on another device."""
        moved = Tiny(self.shape, {key: value.to(device) for key, value in self.weights.items()}, self.name)
        moved.loras = [Lora(x.name, x.rank, {k: (a.to(device), b.to(device)) for k, (a, b) in x.pairs.items()}) for x in self.loras]
        return moved

    # -- one pass --

    def logits(self, ids: Tensor | Sequence[int], adapter: int = -1) -> Tensor:
        """Logits [tokens, vocabulary] of one sequence, computed in one pass and without blocks."""
        x = torch.as_tensor(ids, dtype=torch.int64, device=self.device)
        cache = KvBlocks(self.shape, 1, max(1, len(x)), x.device, self.weights["model.norm.weight"].dtype)
        return self.forward(Batch(x, [0], [len(x)], [[0]], [adapter]), cache, every=True)

    def forward(self, batch: Batch, cache: KvBlocks, *, every: bool = False) -> Tensor:
        """Logits after the last new token of each sequence [sequences, vocabulary], or after every token."""
        s, w = self.shape, self.weights
        places = _Places.of(batch, cache.block, self.device)
        cos, sin = rotation(places.positions, s.head_dim, s.theta)
        x = w["model.embed_tokens.weight"][batch.ids]
        dtype = x.dtype
        cos, sin = cos.to(dtype), sin.to(dtype)
        for i in range(s.layers):
            at = f"model.layers.{i}."
            h = rms_norm(x, w[f"{at}input_layernorm.weight"], s.eps)
            q = self._linear(f"{at}self_attn.q_proj", h, places).view(-1, s.heads, s.head_dim)
            k = self._linear(f"{at}self_attn.k_proj", h, places).view(-1, s.kv_heads, s.head_dim)
            v = self._linear(f"{at}self_attn.v_proj", h, places).view(-1, s.kv_heads, s.head_dim)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            cache.write(i, places.slots, k, v)
            x = x + self._linear(f"{at}self_attn.o_proj", _attend(q, cache, i, places).reshape(len(x), -1), places)
            h = rms_norm(x, w[f"{at}post_attention_layernorm.weight"], s.eps)
            x = x + (self._experts(i, h) if s.experts else self._mlp(at, h, places))
        x = rms_norm(x if every else x[places.ends], w["model.norm.weight"], s.eps)
        return x @ w["model.embed_tokens.weight" if s.tied else "lm_head.weight"].T

    def _linear(self, name: str, x: Tensor, places: _Places) -> Tensor:
        key = f"{name}.weight"
        y = fn.linear(x, self.weights[key], self.weights.get(f"{name}.bias"))
        for number, rows in places.by_adapter:
            pair = self.loras[number].pairs.get(key)
            if pair is not None:
                y[rows] += (x[rows] @ pair[0].T) @ pair[1].T
        return y

    def _mlp(self, at: str, h: Tensor, places: _Places) -> Tensor:
        gate = fn.silu(self._linear(f"{at}mlp.gate_proj", h, places)) * self._linear(f"{at}mlp.up_proj", h, places)
        return self._linear(f"{at}mlp.down_proj", gate, places)

    def _experts(self, layer: int, h: Tensor) -> Tensor:
        at = f"model.layers.{layer}.block_sparse_moe."
        chance = torch.softmax(h @ self.weights[f"{at}gate.weight"].T, dim=-1, dtype=torch.promote_types(h.dtype, torch.float32))
        share, chosen = torch.topk(chance, self.shape.top_k, dim=-1)
        share = (share / share.sum(-1, keepdim=True)).to(h.dtype)
        if self.on_routing is not None:
            self.on_routing(layer, chosen)
        out = torch.zeros_like(h)
        for e in range(self.shape.experts):
            rows, which = torch.nonzero(chosen == e, as_tuple=True)
            if len(rows):
                w1, w2, w3 = (self.weights[f"{at}experts.{e}.{name}.weight"] for name in ("w1", "w2", "w3"))
                y = (fn.silu(h[rows] @ w1.T) * (h[rows] @ w3.T)) @ w2.T
                out.index_add_(0, rows, y * share[rows, which, None])
        return out


class KvBlocks:
    """Keys and values in blocks of `block` tokens: [layers, blocks · block, kv heads, head size] each."""

    def __init__(self, shape: Shape, blocks: int, block: int, device: torch.device | str, dtype: torch.dtype) -> None:
        size = (shape.layers, blocks * block, shape.kv_heads, shape.head_dim)
        self.block = block
        self.k = torch.zeros(size, device=device, dtype=dtype)
        self.v = torch.zeros(size, device=device, dtype=dtype)

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Stores the keys and values of tokens at their slots."""
        self.k[layer, slots] = k
        self.v[layer, slots] = v


@dataclass(frozen=True)
class _Places:
    """Where the tokens of a batch are."""

    positions: Tensor  # [tokens]
    slots: Tensor  # [tokens]: where their keys and values go
    ends: Tensor  # [sequences]: the last token of each
    singles: Tensor  # [decodes]: tokens that are alone in their sequence
    single_slots: Tensor  # [decodes, longest context]: the slots they attend to, padded
    single_lengths: Tensor  # [decodes]
    chunks: list[tuple[int, int, int, Tensor]]  # (first token, tokens, tokens of context, the slots of context and chunk)
    by_adapter: list[tuple[int, Tensor]]

    @staticmethod
    def of(batch: Batch, block: int, device: torch.device) -> _Places:
        positions, slots, ends, singles, wide, lengths, chunks = [], [], [], [], [], [], []
        by_adapter: dict[int, list[int]] = {}
        at = 0
        for i, (start, count, table) in enumerate(zip(batch.starts, batch.counts, batch.tables, strict=True)):
            total = start + count
            own = (torch.tensor(table)[:, None] * block + torch.arange(block)).reshape(-1)[:total]
            positions.append(torch.arange(start, total))
            slots.append(own[start:])
            if count == 1:
                singles.append(at)
                wide.append(own)
                lengths.append(total)
            else:
                chunks.append((at, count, start, own.to(device)))
            adapter = batch.adapters[i] if batch.adapters else -1
            if adapter >= 0:
                by_adapter.setdefault(adapter, []).extend(range(at, at + count))
            at += count
            ends.append(at - 1)
        padded = torch.nn.utils.rnn.pad_sequence(wide, batch_first=True) if wide else torch.zeros((0, 0), dtype=torch.int64)
        return _Places(
            torch.cat(positions).to(device), torch.cat(slots).to(device), torch.tensor(ends, device=device),
            torch.tensor(singles, dtype=torch.int64, device=device), padded.to(device), torch.tensor(lengths, device=device), chunks,
            [(number, torch.tensor(rows, device=device)) for number, rows in sorted(by_adapter.items())],
        )  # fmt: skip


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """weight · x / √(mean of x² + eps) over the last axis, computed in float32 or wider."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def rotation(positions: Tensor, dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines [tokens, 1, dim] of the rotary angles of each position."""
    rates = 1.0 / (theta ** (torch.arange(0, dim, 2, dtype=torch.float64, device=positions.device) / dim))
    angle = positions[:, None].double() * rates
    both = torch.cat([angle, angle], dim=-1)
    return both.cos()[:, None], both.sin()[:, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates queries or keys [tokens, heads, dim] by their positions."""
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


def _attend(q: Tensor, cache: KvBlocks, layer: int, places: _Places) -> Tensor:
    """The attention of every token to its own sequence up to itself: [tokens, heads, head size]."""
    heads, dim = q.shape[1], q.shape[2]
    k, v = cache.k[layer], cache.v[layer]
    groups = heads // k.shape[1]
    out = torch.empty_like(q)
    scale = 1.0 / math.sqrt(dim)
    if len(places.singles):
        one = q[places.singles].view(-1, k.shape[1], groups, dim)
        keys, values = k[places.single_slots], v[places.single_slots]
        score = torch.einsum("bhgd,bthd->bhgt", one, keys) * scale
        beyond = torch.arange(keys.shape[1], device=q.device) >= places.single_lengths[:, None]
        score.masked_fill_(beyond[:, None, None], float("-inf"))
        out[places.singles] = torch.einsum("bhgt,bthd->bhgd", torch.softmax(score, -1), values).reshape(-1, heads, dim)
    for first, count, before, slots in places.chunks:
        mine = q[first : first + count].view(count, k.shape[1], groups, dim)
        score = torch.einsum("nhgd,thd->hgnt", mine, k[slots]) * scale
        ahead = torch.arange(before + count, device=q.device) > torch.arange(before, before + count, device=q.device)[:, None]
        score.masked_fill_(ahead, float("-inf"))
        out[first : first + count] = torch.einsum("hgnt,thd->nhgd", torch.softmax(score, -1), v[slots]).reshape(count, heads, dim)
    return out
