"""How each family of transformers spells its config, and which tensors its layers have.

The counts are checked tensor by tensor against the reference implementations, built on the meta device (tests/llm/test_shapes.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

from armillary.errors import InputError, unknown
from armillary.llm.model.config import Config
from armillary.llm.model.shapes import Layer, Mla, Model, Moe, Quantised, Tensor

MOST_LAYERS = 100_000
_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float8_e4m3fn": "fp8", "int8": "int8"}


def model_of(config: Config, *, assume: str | None = None, name: str | None = None) -> Model:
    """The model that a config describes; see `Model.from_config`."""
    family = config.text("model_type", "") or ""
    read = FAMILIES.get(family)
    if read is None and assume is not None:
        if assume not in FAMILIES:
            raise unknown("family", assume, FAMILIES)
        family, read = assume, FAMILIES[assume]
    if read is None:
        raise InputError(f'key "model_type": found "{family}"; expected one of {", ".join(FAMILIES)} (or assume=)', where=config.where)
    return read(config, family, name or config.text("_name_or_path") or family)


# Tensors that families share


def _norm(name: str, size: int, kind: str) -> Tensor:
    return Tensor(name, "norm", "norm", 1, size, bias=size if kind == "layer" else 0, matmul=False)


def _embedding(name: str, rows: int, hidden: int) -> Tensor:
    return Tensor(name, "embedding", "embedding", rows, hidden, matmul=False, split="vocabulary")


def _positions(name: str, rows: int, hidden: int) -> Tensor:
    return Tensor(name, "embedding", "embedding", rows, hidden, matmul=False)


def _head(hidden: int, vocab: int, tied: bool, bias: bool = False) -> tuple[Tensor, ...]:
    weight = Tensor("lm_head", "head", "head", hidden, vocab, split="vocabulary", tied=tied)
    return (weight, Tensor("lm_head.bias", "head", "head_bias", 1, vocab, matmul=False, split="vocabulary")) if bias else (weight,)


@dataclass(frozen=True)
class _Heads:
    """The sizes of attention."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int

    @property
    def q(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv(self) -> int:
        return self.kv_heads * self.head_dim


def _heads(config: Config, kv_heads: int | None = None) -> _Heads:
    hidden, heads = config.size("hidden_size", "n_embd", "d_model"), config.size("num_attention_heads", "n_head")
    if kv_heads is None:
        kv_heads = config.size("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise config.error("num_key_value_heads", f"found {kv_heads} for {heads} heads; expected a divisor of the heads")
    if config.has("head_dim"):
        return _Heads(hidden, heads, kv_heads, config.size("head_dim"))
    if hidden % heads:
        raise config.error("hidden_size", f"found {hidden} for {heads} heads; expected a multiple of them, or head_dim")
    return _Heads(hidden, heads, kv_heads, hidden // heads)


def _separate(a: _Heads, qkv_bias: bool, o_bias: bool, out: str = "o_proj") -> tuple[Tensor, ...]:
    """Separate matrices for query, key, value and output."""
    return (
        Tensor("q_proj", "attention", "qkv", a.hidden, a.q, a.q * qkv_bias, split="columns"),
        Tensor("k_proj", "attention", "qkv", a.hidden, a.kv, a.kv * qkv_bias, split="kv"),
        Tensor("v_proj", "attention", "qkv", a.hidden, a.kv, a.kv * qkv_bias, split="kv"),
        Tensor(out, "attention", "o", a.q, a.hidden, a.hidden * o_bias, split="rows"),
    )


def _fused(a: _Heads, names: tuple[str, str], qkv_bias: bool, o_bias: bool) -> tuple[Tensor, ...]:
    """Query, key and value in one matrix."""
    out = a.q + 2 * a.kv
    return (
        Tensor(names[0], "attention", "qkv", a.hidden, out, out * qkv_bias, split="fused"),
        Tensor(names[1], "attention", "o", a.q, a.hidden, a.hidden * o_bias, split="rows"),
    )


def _gated(hidden: int, ffn: int, role: str = "", bias: bool = False, copies: int = 1, used: int = 1) -> tuple[Tensor, ...]:
    """down(act(gate(x)) · up(x))."""
    up, down = (f"{role}_gate_up", f"{role}_down") if role else ("gate_up", "down")
    prefix = {"expert": "experts.", "shared": "shared_experts.", "": ""}[role]
    return (
        Tensor(f"{prefix}gate_proj", "mlp", up, hidden, ffn, ffn * bias, copies, used, split="columns"),
        Tensor(f"{prefix}up_proj", "mlp", up, hidden, ffn, ffn * bias, copies, used, split="columns"),
        Tensor(f"{prefix}down_proj", "mlp", down, ffn, hidden, hidden * bias, copies, used, split="rows"),
    )


def _plain(hidden: int, ffn: int, names: tuple[str, str], bias: bool = True) -> tuple[Tensor, ...]:
    """down(act(up(x)))."""
    return (
        Tensor(names[0], "mlp", "gate_up", hidden, ffn, ffn * bias, split="columns"),
        Tensor(names[1], "mlp", "down", ffn, hidden, hidden * bias, split="rows"),
    )


# What a config states besides sizes


def _dtype(config: Config) -> str:
    name = config.text("torch_dtype") or config.text("dtype") or "bfloat16"
    if name.removeprefix("torch.") not in _DTYPES:
        raise unknown("dtype", name, _DTYPES, where=config.where)
    return _DTYPES[name.removeprefix("torch.")]


def _quantised(config: Config) -> Quantised | None:
    table = config.table("quantization_config")
    if table is None:
        return None
    method = table.text("quant_method", "") or ""
    head = table.flag("lm_head", False)
    if method == "fp8":
        return Quantised("fp8", 8, head=head)
    if method in ("gptq", "awq"):
        bits, group = table.size("bits", "w_bit"), table.size("group_size", "q_group_size", default=0, least=-1)
        if bits not in (4, 8):
            raise table.error("bits", f"found {bits}; expected 4 or 8")
        return Quantised(method, bits, max(group, 0), head)
    if method == "mxfp4":
        return Quantised("mxfp4", 4, 32, experts_only=True)
    if method == "bitsandbytes":
        return Quantised(method, 4, 64) if table.flag("load_in_4bit", False) else Quantised(method, 8)
    if method == "compressed-tensors":
        groups = table.table("config_groups")
        first = next((groups.table(key) for key in groups.keys), None) if groups else None
        weights = first.table("weights") if first else None
        if weights is None:
            raise table.error("config_groups", "expected a group with weights")
        bits = weights.size("num_bits")
        if bits not in (4, 8):
            raise weights.error("num_bits", f"found {bits}; expected 4 or 8")
        return Quantised(method, bits, weights.size("group_size", default=0, least=-1) if weights.has("group_size") else 0)
    raise unknown("quant_method", method, ("fp8", "gptq", "awq", "mxfp4", "bitsandbytes", "compressed-tensors"), where=table.where)


def _layers(config: Config) -> int:
    layers = config.size("num_hidden_layers", "n_layer", "num_layers")
    if layers > MOST_LAYERS:
        raise config.error("num_hidden_layers", f"found {layers}; expected at most {MOST_LAYERS}")
    return layers


def _windows(config: Config, family: str, layers: int) -> list[int | None]:
    """The reach of each layer's attention in tokens; None means all tokens."""
    if not config.has("sliding_window") or (family.startswith("qwen") and not config.flag("use_sliding_window", False)):
        return [None] * layers
    if family not in ("mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma2", "gpt_oss"):
        return [None] * layers
    window = config.size("sliding_window")
    types = config.items("layer_types", str)
    if types is not None:
        if len(types) < layers or not set(types) <= {"sliding_attention", "full_attention"}:
            raise config.error("layer_types", f'expected "sliding_attention" or "full_attention" for each of {layers} layers')
        return [window if kind == "sliding_attention" else None for kind in types[:layers]]
    if family in ("gemma2", "gpt_oss"):
        return [window if i % 2 == 0 else None for i in range(layers)]
    first = config.size("max_window_layers", default=0, least=0) if family.startswith("qwen") else 0
    return [window if i >= first else None for i in range(layers)]


def _kinds(
    dense: tuple[Tensor, ...], sparse: tuple[Tensor, ...], moe: list[bool], windows: list[int | None]
) -> tuple[tuple[Layer, int], ...]:
    """Joins equal neighbours into runs."""
    found = []
    for (is_moe, window), same in groupby(zip(moe, windows)):
        layer = Layer("full" if window is None else "window", "moe" if is_moe else "dense", sparse if is_moe else dense, window)
        found.append((layer, len(list(same))))
    return tuple(found)


def _length(config: Config) -> int:
    return config.size("max_position_embeddings", "n_positions", default=0)


# Families


def _llama_like(config: Config, family: str, name: str) -> Model:
    """RMS norms, rotary positions, gated MLP; biases, extra norms and experts by family."""
    a, layers = _heads(config), _layers(config)
    biased = config.flag("attention_bias", family == "gpt_oss") if family not in ("qwen2", "mistral", "mixtral") else False
    qkv_bias = family == "qwen2" or (config.flag("qkv_bias", True) if family == "qwen2_moe" else biased)
    attention = _separate(a, qkv_bias, biased if family != "qwen2_moe" else False)
    if family in ("qwen3", "qwen3_moe"):
        attention += (_norm("q_norm", a.head_dim, "rms"), _norm("k_norm", a.head_dim, "rms"))
    if family == "gpt_oss":
        attention += (Tensor("sinks", "attention", "sinks", 1, a.heads, matmul=False, split="columns"),)
    norms = ["input_layernorm", "post_attention_layernorm"]
    if family == "gemma2":
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    block = attention + tuple(_norm(each, a.hidden, "rms") for each in norms)
    moe, sparse = _experts(config, family, a.hidden)
    ffn = config.size("intermediate_size", "ffn_dim", "n_inner", default=moe.ffn if moe else 4 * a.hidden)
    dense = _gated(a.hidden, ffn, bias=family == "llama" and config.flag("mlp_bias", False))
    which = _moe_layers(config, family, layers) if moe else [False] * layers
    return _assembled(config, family, name, a, ffn, _kinds(block + dense, block + sparse, which, _windows(config, family, layers)), moe=moe)


def _experts(config: Config, family: str, hidden: int) -> tuple[Moe | None, tuple[Tensor, ...]]:
    """The experts of a sparse layer and their tensors, router and shared experts included."""
    names = {"mixtral": "num_local_experts", "gpt_oss": "num_local_experts", "qwen2_moe": "num_experts", "qwen3_moe": "num_experts"}
    if family not in names and not family.startswith("deepseek"):
        return None, ()
    experts = config.size(names.get(family, "n_routed_experts"), "num_local_experts", "num_experts", "n_routed_experts")
    top_k = config.size("num_experts_per_tok", "experts_per_token")
    if top_k > experts:
        raise config.error("num_experts_per_tok", f"found {top_k} of {experts} experts; expected at most {experts}")
    ffn = config.size("moe_intermediate_size", "intermediate_size")
    if family == "qwen2_moe":
        shared = config.size("shared_expert_intermediate_size", default=0, least=0)
    else:
        shared = config.size("n_shared_experts", default=0, least=0) * ffn if family.startswith("deepseek") else 0
    bias = family == "gpt_oss"
    tensors = (Tensor("router", "router", "router", hidden, experts, experts * bias), *_gated(hidden, ffn, "expert", bias, experts, top_k))
    if shared:
        tensors += _gated(hidden, shared, "shared")
        if family == "qwen2_moe":
            tensors += (Tensor("shared_expert_gate", "router", "shared_gate", hidden, 1),)
    return Moe(experts, top_k, ffn, shared), tensors


def _moe_layers(config: Config, family: str, layers: int) -> list[bool]:
    if family.startswith("deepseek"):
        first = config.size("first_k_dense_replace", default=0, least=0)
        return [i >= first for i in range(layers)]
    if family in ("qwen2_moe", "qwen3_moe"):
        step, plain = config.size("decoder_sparse_step", default=1), set(config.items("mlp_only_layers", int) or ())
        return [i not in plain and (i + 1) % step == 0 for i in range(layers)]
    return [True] * layers


def _assembled(
    config: Config, family: str, name: str, a: _Heads, ffn: int, kinds: tuple[tuple[Layer, int], ...], *, moe: Moe | None = None,
    mla: Mla | None = None,
) -> Model:  # fmt: skip
    vocab = config.size("vocab_size")
    tied = config.flag("tie_word_embeddings", family in ("gemma", "gemma2"))
    once = (_embedding("embed_tokens", vocab, a.hidden), _norm("norm", a.hidden, "rms"), *_head(a.hidden, vocab, tied))
    return Model(
        name, family, a.hidden, a.heads, a.kv_heads, a.head_dim, ffn, vocab, tied, True, "rms", kinds, once, _length(config),
        dtype=_dtype(config), moe=moe, mla=mla, quantised=_quantised(config),
    )  # fmt: skip


def _deepseek(config: Config, family: str, name: str) -> Model:
    """Latent attention, dense layers first, then experts with shared ones."""
    hidden, heads, layers = config.size("hidden_size"), config.size("num_attention_heads"), _layers(config)
    mla = Mla(
        config.size("q_lora_rank", default=0) or None, config.size("kv_lora_rank"), config.size("qk_nope_head_dim"),
        config.size("qk_rope_head_dim"), config.size("v_head_dim"),
    )  # fmt: skip
    bias, wide = config.flag("attention_bias", False), heads * (mla.nope + mla.rope)
    if mla.q_rank:
        query: tuple[Tensor, ...] = (
            Tensor("q_a_proj", "attention", "q_a", hidden, mla.q_rank, mla.q_rank * bias),
            _norm("q_a_layernorm", mla.q_rank, "rms"),
            Tensor("q_b_proj", "attention", "q_b", mla.q_rank, wide, split="columns"),
        )
    else:
        query = (Tensor("q_proj", "attention", "q_b", hidden, wide, split="columns"),)
    compressed = mla.kv_rank + mla.rope
    attention = (
        *query,
        Tensor("kv_a_proj_with_mqa", "attention", "kv_a", hidden, compressed, compressed * bias),
        _norm("kv_a_layernorm", mla.kv_rank, "rms"),
        Tensor("kv_b_proj", "attention", "kv_b", mla.kv_rank, heads * (mla.nope + mla.value), split="columns"),
        Tensor("o_proj", "attention", "o", heads * mla.value, hidden, hidden * bias, split="rows"),
    )
    block = (*attention, _norm("input_layernorm", hidden, "rms"), _norm("post_attention_layernorm", hidden, "rms"))
    moe, sparse = _experts(config, family, hidden)
    ffn = config.size("intermediate_size")
    mlp_bias = family == "deepseek_v2" and config.flag("mlp_bias", False)
    dense = _gated(hidden, ffn, bias=mlp_bias)
    kinds = _kinds(block + dense, block + sparse, _moe_layers(config, family, layers), [None] * layers)
    a = _Heads(hidden, heads, heads, mla.nope + mla.rope)
    return _assembled(config, family, name, a, ffn, kinds, moe=moe, mla=mla)


@dataclass(frozen=True)
class _Classic:
    """The remaining choices of a block with LayerNorms and a plain MLP."""

    attention: tuple[Tensor, ...]
    mlp: tuple[Tensor, ...]
    norms: tuple[Tensor, ...]
    once: tuple[Tensor, ...]
    tied: bool


def _classic(config: Config, family: str, name: str, a: _Heads, ffn: int, parts: _Classic, *, causal: bool = True) -> Model:
    layer = Layer("full", "dense", parts.attention + parts.mlp + parts.norms)
    return Model(
        name, family, a.hidden, a.heads, a.kv_heads, a.head_dim, ffn, config.size("vocab_size"), parts.tied, False, "layer",
        ((layer, _layers(config)),), parts.once, _length(config), causal=causal, dropout=family in ("gpt2", "opt", "bert"),
        dtype=_dtype(config), quantised=_quantised(config),
    )  # fmt: skip


def _gpt2(config: Config, family: str, name: str) -> Model:
    a, vocab = _heads(config), config.size("vocab_size")
    ffn, tied = config.size("n_inner", "intermediate_size", default=4 * a.hidden), config.flag("tie_word_embeddings", True)
    once = (
        _embedding("wte", vocab, a.hidden),
        _positions("wpe", config.size("n_positions", "max_position_embeddings"), a.hidden),
        _norm("ln_f", a.hidden, "layer"),
        *_head(a.hidden, vocab, tied),
    )
    parts = _Classic(
        _fused(a, ("c_attn", "attn.c_proj"), True, True), _plain(a.hidden, ffn, ("c_fc", "mlp.c_proj")),
        (_norm("ln_1", a.hidden, "layer"), _norm("ln_2", a.hidden, "layer")), once, tied,
    )  # fmt: skip
    return _classic(config, family, name, a, ffn, parts)


def _gpt_neox(config: Config, family: str, name: str) -> Model:
    a, vocab = _heads(config, kv_heads=config.size("num_attention_heads")), config.size("vocab_size")
    ffn, tied = config.size("intermediate_size"), config.flag("tie_word_embeddings", False)
    bias = config.flag("attention_bias", True)
    once = (_embedding("embed_in", vocab, a.hidden), _norm("final_layer_norm", a.hidden, "layer"), *_head(a.hidden, vocab, tied))
    parts = _Classic(
        _fused(a, ("query_key_value", "dense"), bias, bias), _plain(a.hidden, ffn, ("dense_h_to_4h", "dense_4h_to_h")),
        (_norm("input_layernorm", a.hidden, "layer"), _norm("post_attention_layernorm", a.hidden, "layer")), once, tied,
    )  # fmt: skip
    return _classic(config, family, name, a, ffn, parts)


def _opt(config: Config, family: str, name: str) -> Model:
    a, vocab = _heads(config), config.size("vocab_size")
    ffn, tied, bias = (
        config.size("ffn_dim", "intermediate_size"),
        config.flag("tie_word_embeddings", True),
        config.flag("enable_bias", True),
    )
    narrow = config.size("word_embed_proj_dim", default=a.hidden)
    affine = config.flag("layer_norm_elementwise_affine", True)
    norms = (_norm("self_attn_layer_norm", a.hidden, "layer"), _norm("final_layer_norm", a.hidden, "layer")) if affine else ()
    once = [_embedding("embed_tokens", vocab, narrow), _positions("embed_positions", config.size("max_position_embeddings") + 2, a.hidden)]
    if narrow != a.hidden:
        once.append(Tensor("project_in", "embedding", "projection", narrow, a.hidden))
        once.append(Tensor("project_out", "embedding", "projection", a.hidden, narrow))
    if affine and config.flag("do_layer_norm_before", True) and not config.flag("_remove_final_layer_norm", False):
        once.append(_norm("decoder.final_layer_norm", a.hidden, "layer"))
    mlp = _plain(a.hidden, ffn, ("fc1", "fc2"), bias)
    parts = _Classic(_separate(a, bias, bias, "out_proj"), mlp, norms, (*once, *_head(narrow, vocab, tied)), tied)
    return _classic(config, family, name, a, ffn, parts)


def _phi(config: Config, family: str, name: str) -> Model:
    a, vocab = _heads(config), config.size("vocab_size")
    ffn, tied = config.size("intermediate_size"), config.flag("tie_word_embeddings", False)
    norms: tuple[Tensor, ...] = (_norm("input_layernorm", a.hidden, "layer"),)
    if config.flag("qk_layernorm", False):
        each = a.hidden // a.heads
        norms += (_norm("q_layernorm", each, "layer"), _norm("k_layernorm", each, "layer"))
    once = (_embedding("embed_tokens", vocab, a.hidden), _norm("final_layernorm", a.hidden, "layer"), *_head(a.hidden, vocab, tied, True))
    parts = _Classic(_separate(a, True, True, "dense"), _plain(a.hidden, ffn, ("fc1", "fc2")), norms, once, tied)
    return _classic(config, family, name, a, ffn, parts)


def _falcon(config: Config, family: str, name: str) -> Model:
    new, one = config.flag("new_decoder_architecture", False), config.flag("multi_query", True)
    heads = config.size("num_attention_heads", "n_head")
    kv_heads = config.size("num_kv_heads", default=heads) if new else 1 if one else heads
    a, vocab = _heads(config, kv_heads=kv_heads), config.size("vocab_size")
    ffn = config.size("ffn_hidden_size", default=4 * a.hidden)
    tied, bias = config.flag("tie_word_embeddings", True), config.flag("bias", False)
    parallel = config.flag("parallel_attn", True)
    count = config.size("num_ln_in_parallel_attn", default=2 if new else 1, least=0) if parallel else 2
    norms = tuple(_norm(f"layernorm_{i}", a.hidden, "layer") for i in range(2 if count == 2 else 1))
    once = (_embedding("word_embeddings", vocab, a.hidden), _norm("ln_f", a.hidden, "layer"), *_head(a.hidden, vocab, tied))
    parts = _Classic(
        _fused(a, ("query_key_value", "dense"), bias, bias),
        _plain(a.hidden, ffn, ("dense_h_to_4h", "dense_4h_to_h"), bias),
        norms,
        once,
        tied,
    )
    return _classic(config, family, name, a, ffn, parts)


def _bloom(config: Config, family: str, name: str) -> Model:
    """GPT-NeoX's block without rotary positions: distances bias the scores (ALiBi), and a norm follows the embedding."""
    heads = config.size("num_attention_heads", "n_head")
    a, vocab = _heads(config, kv_heads=heads), config.size("vocab_size")
    tied = config.flag("tie_word_embeddings", True)
    once = (
        _embedding("word_embeddings", vocab, a.hidden),
        _norm("word_embeddings_layernorm", a.hidden, "layer"),
        _norm("ln_f", a.hidden, "layer"),
        *_head(a.hidden, vocab, tied),
    )
    parts = _Classic(
        _fused(a, ("query_key_value", "dense"), True, True), _plain(a.hidden, 4 * a.hidden, ("dense_h_to_4h", "dense_4h_to_h")),
        (_norm("input_layernorm", a.hidden, "layer"), _norm("post_attention_layernorm", a.hidden, "layer")), once, tied,
    )  # fmt: skip
    return _classic(config, family, name, a, 4 * a.hidden, parts)


def _bert(config: Config, family: str, name: str) -> Model:
    """The encoder with its masked-language-model head."""
    a, vocab = _heads(config, kv_heads=config.size("num_attention_heads")), config.size("vocab_size")
    ffn, tied = config.size("intermediate_size"), config.flag("tie_word_embeddings", True)
    once = (
        _embedding("word_embeddings", vocab, a.hidden),
        _positions("position_embeddings", config.size("max_position_embeddings"), a.hidden),
        _positions("token_type_embeddings", config.size("type_vocab_size", default=2), a.hidden),
        _norm("embeddings.LayerNorm", a.hidden, "layer"),
        Tensor("transform.dense", "head", "transform", a.hidden, a.hidden, a.hidden),
        _norm("transform.LayerNorm", a.hidden, "layer"),
        *_head(a.hidden, vocab, tied, True),
        # When untied, the reference keeps the bias of the prediction in addition to the decoder's own.
        *(() if tied else (Tensor("predictions.bias", "head", "head_bias", 1, vocab, matmul=False, split="vocabulary"),)),
    )
    norms = (_norm("attention.output.LayerNorm", a.hidden, "layer"), _norm("output.LayerNorm", a.hidden, "layer"))
    parts = _Classic(
        _separate(a, True, True, "attention.output.dense"), _plain(a.hidden, ffn, ("intermediate.dense", "output.dense")), norms, once, tied
    )
    return _classic(config, family, name, a, ffn, parts, causal=False)


FAMILIES: dict[str, Callable[[Config, str, str], Model]] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "mixtral", "gemma", "gemma2", "gpt_oss"), _llama_like),
    "deepseek": _llama_like,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "opt": _opt,
    "phi": _phi,
    "falcon": _falcon,
    "bloom": _bloom,
    "bert": _bert,
}
