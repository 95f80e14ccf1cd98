"""Flops, caches and activations: by hand, by PyTorch's own counter, and by the tensors that autograd really keeps."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.llm import Model, TrainState, activations, flops, kv_bytes, kv_bytes_per_token
from armillary.llm.cost.counts import layer_flops, local_params, megatron_flops, pair_flops, pairs
from armillary.llm.cost.memory import activation_terms

SMALL = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "vocab_size": 100,
}  # fmt: skip


def gpt(heads: int, hidden: int, layers: int) -> Model:
    """The GPT block of the Megatron papers."""
    sizes = {"n_embd": hidden, "n_layer": layers, "n_head": heads, "n_positions": 2048, "vocab_size": 51200}
    return Model.from_config({"model_type": "gpt2", **sizes})


def test_llama_3_8b_forward_as_published() -> None:
    found = flops(Model.preset("llama-3-8b"), [(1024, 0)], causal=False)
    assert found.forward == 15_919_296_282_624
    assert found.matmul == 2 * 1024 * 7_504_658_432
    assert found.attention == 4 * 1024**2 * 4096 * 32


def test_serving_counts_the_head_for_one_token_a_segment() -> None:
    model = Model.from_config(SMALL)
    every, last = flops(model, [(10, 0), (1, 5)]), flops(model, [(10, 0), (1, 5)], logits="last")
    assert every.matmul - last.matmul == 2 * 9 * 64 * 100
    assert every.train == 3 * every.matmul + 3 * every.attention
    assert every.backward_input == every.backward_weight == every.matmul
    assert every.attention_backward_executed == 5 * every.attention // 2


def test_adapters_count() -> None:
    model = Model.from_config(SMALL)
    extra = flops(model.with_lora(4), [(10, 0)]).matmul - flops(model, [(10, 0)]).matmul
    assert extra == 2 * 10 * 4 * 2 * ((64 + 64) + (64 + 32))


@given(st.integers(0, 60), st.integers(0, 60), st.none() | st.integers(1, 80))
def test_pairs_are_counted_one_by_one(new: int, context: int, window: int | None) -> None:
    one_by_one = sum(min(context + j + 1, window or 10**9) for j in range(new))
    assert pairs(new, context, window) == one_by_one
    assert pairs(new, context, causal=False) == new * (context + new)


@given(st.integers(1, 3000), st.integers(0, 3000))
def test_a_slice_and_its_continuation_have_the_pairs_of_the_whole(n: int, context: int) -> None:
    assert pairs(n, context) + pairs(n, context + n) == pairs(2 * n, context)


def test_cache_bytes_as_published() -> None:
    wanted = {"llama-3-8b": 131_072, "llama-2-7b": 524_288, "deepseek-v3": 70_272, "qwen2.5-7b": 57_344, "llama-3.1-70b": 327_680}
    assert {name: kv_bytes_per_token(Model.preset(name)) for name in wanted} == wanted
    assert kv_bytes_per_token(Model.preset("llama-3-8b"), "fp8") == 65_536


def test_windows_cap_the_cache() -> None:
    mistral = Model.preset("mistral-7b")
    assert kv_bytes(mistral, 4096) == kv_bytes(mistral, 9000) == 4096 * kv_bytes_per_token(mistral)
    oss = Model.preset("gpt-oss-20b")
    assert kv_bytes(oss, 1000) == (12 * 1000 + 12 * 128) * 2 * 8 * 64 * 2


def test_a_latent_cache_is_smaller_and_decoding_on_it_absorbs_the_projections() -> None:
    model = Model.preset("deepseek-v3")
    assert kv_bytes_per_token(model) < model.layers * 2 * model.heads * 128 * 2
    assert pair_flops(model) == 2 * 128 * (192 + 128)
    assert pair_flops(model, absorbed=True) == 2 * 128 * (512 + 64) + 2 * 128 * 512


def test_adam_keeps_eighteen_bytes_a_parameter() -> None:
    assert TrainState().total == 18
    assert TrainState(gradient=2).total == 16
    assert TrainState().optimizer == 12


def test_megatrons_formula_is_near_a_full_recomputation() -> None:
    model = gpt(96, 12288, 80)
    ours = 4 * sum(n * layer_flops(model, kind, [(2048, 0)], causal=False).forward for kind, n in model.kinds)
    ours += 3 * 2 * 2048 * 51200 * 12288
    assert ours == pytest.approx(megatron_flops(1, 2048, 80, 12288, 51200), rel=1e-3)
    assert megatron_flops(1, 2048, 80, 12288, 51200, recompute=False) == pytest.approx(0.75 * megatron_flops(1, 2048, 80, 12288, 51200))


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("name", Model.presets())
def test_tensor_parallelism_divides_matrices(tp: int, name: str) -> None:
    model = Model.preset(name)
    heads_divide = model.heads % tp == 0 and model.kv_heads % tp == 0
    for kind, _ in model.kinds:
        for tensor in kind.tensors:
            whole, local = local_params(model, tensor), local_params(model, tensor, tp)
            if tensor.split == "whole":
                assert local == whole
            elif tensor.split == "fused" and not heads_divide:
                queries, keys = math.ceil(model.heads / tp), math.ceil(model.kv_heads / tp)
                assert local == tensor.inputs * (queries + 2 * keys) * model.head_dim
            elif tensor.split != "rows":
                assert local * tp == whole
            else:
                assert (local - tensor.bias * tensor.copies) * tp == whole - tensor.bias * tensor.copies


# PyTorch's counter

COUNTED: dict[str, dict[str, Any]] = {
    "grouped heads, untied": SMALL,
    "tied": {**SMALL, "tie_word_embeddings": True},
    "experts": {**SMALL, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "shared experts": {**SMALL, "model_type": "qwen2_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                       "shared_expert_intermediate_size": 40, "head_dim": 16},
    "latent": {**SMALL, "model_type": "deepseek_v3", "num_key_value_heads": 4, "n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1,
               "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "first_k_dense_replace": 1, "q_lora_rank": 12,
               "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8},
    "learned positions": {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 100},
    "parallel block": {"model_type": "falcon", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100},
    "narrow embedding": {"model_type": "opt", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
                         "ffn_dim": 96, "max_position_embeddings": 64, "word_embed_proj_dim": 32},
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_forward_flops_equal_pytorchs_counter(name: str) -> None:
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    config = COUNTED[name]
    reference = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**config), attn_implementation="eager", experts_implementation="eager"
    )
    reference.eval()
    with torch.no_grad(), FlopCounterMode(display=False, depth=8) as counter:
        reference(torch.randint(0, 100, (2, 24), generator=torch.Generator().manual_seed(0)))
    by_module = counter.get_flop_counts()
    # The angles of the rotation are computed as a product of positions and frequencies: no part of the model.
    angles = {name: sum(by_module[name].values()) for name in by_module if name.endswith("rotary_emb")}
    counted = counter.get_total_flops() - sum(angles.values())
    assert flops(Model.from_config(config), [(24, 0)] * 2, causal=False).forward == counted


# Activations


def test_the_gpt_block_keeps_34_sbh_and_5_ass() -> None:
    """Korthikanti et al., table 2: every parallelism and recomputation."""
    s, b, h, a, t = 2048, 2, 6144, 64, 8
    model = gpt(a, h, 1)
    layer, sbh = model.layer(0), s * b * h

    def kept(**how: Any) -> float:
        return activations(model, layer, b, s, **{"attention": "unfused", **how}).total

    same = partial(pytest.approx, rel=1e-12)
    assert kept() == same(sbh * (34 + 5 * a * s / h))
    assert kept(recompute="selective") == same(34 * sbh)
    assert kept(recompute="full") == same(2 * sbh)
    assert kept(tp=t) == same(sbh * (10 + 24 / t + 5 * a * s / (h * t)))
    assert kept(tp=t, sequence_parallel=True) == same(sbh / t * (34 + 5 * a * s / h))
    assert kept(tp=t, sequence_parallel=True, recompute="selective") == same(sbh * 34 / t)
    assert kept(attention="flash") == 34 * sbh + 4 * a * s * b


def test_a_gated_grouped_block_by_its_terms() -> None:
    model = Model.preset("llama-3-8b")
    h, i, q, kv = 4096, 14336, 4096, 1024
    assert (
        sum(t.per_token for t in activation_terms(model, model.layer(0), 8192)) == 4 * h + 2 * (q + 2 * kv) + 2 * q + 4 * 32 + 4 * h + 6 * i
    )
    mlp = activations(model, model.layer(0), 1, 8192, recompute="mlp")
    assert mlp.total == activations(model, model.layer(0), 1, 8192).total - 8192 * 6 * i
    assert mlp.extra_flops == 2 * 8192 * 2 * h * i
    full = activations(model, model.layer(0), 1, 8192, recompute="full")
    assert full.extra_flops == layer_flops(model, model.layer(0), [(8192, 0)]).forward


def _gated_block(torch: Any, h: int, heads: int, kv_heads: int, ffn: int) -> tuple[Any, dict[str, Any]]:
    """A gated block with grouped heads, and its weights; norm and activation are one function each, as their kernels are."""
    functional = torch.nn.functional

    def fused(work: Any) -> Any:
        """`work` as one step of autograd that keeps its inputs only."""

        class Fused(torch.autograd.Function):  # type: ignore[misc]
            @staticmethod
            def forward(ctx: Any, *inputs: Any) -> Any:
                ctx.save_for_backward(*inputs)
                return work(*inputs)

            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                with torch.enable_grad():
                    inputs = [x.detach().requires_grad_() for x in ctx.saved_tensors]
                    return torch.autograd.grad(work(*inputs), inputs, grad)

        return Fused.apply

    norm, gated = fused(lambda x, w: functional.rms_norm(x, (h,), w)), fused(lambda gate, up: functional.silu(gate) * up)
    d = h // heads
    outs = {"q": h, "k": kv_heads * d, "v": kv_heads * d, "o": h, "gate": ffn, "up": ffn}
    w = {name: torch.nn.Parameter(torch.randn(out, h, dtype=torch.bfloat16) * 0.05) for name, out in outs.items()}
    w["down"] = torch.nn.Parameter(torch.randn(h, ffn, dtype=torch.bfloat16) * 0.05)
    w["norm1"], w["norm2"] = (torch.nn.Parameter(torch.ones(h, dtype=torch.bfloat16)) for _ in range(2))

    def run(x: Any) -> Any:
        b, s, _ = x.shape
        y = norm(x, w["norm1"])
        q, k, v = (functional.linear(y, w[n]).view(b, s, -1, d).transpose(1, 2) for n in "qkv")
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + functional.linear(out.transpose(1, 2).reshape(b, s, h), w["o"])
        y = norm(x, w["norm2"])
        return x + functional.linear(gated(functional.linear(y, w["gate"]), functional.linear(y, w["up"])), w["down"])

    return run, w


def _plain_block(torch: Any, h: int, heads: int, ffn: int) -> tuple[Any, dict[str, Any]]:
    """A GPT block without dropout, of PyTorch's own operators, and its weights."""
    functional = torch.nn.functional
    w = {name: torch.nn.Parameter(torch.randn(*size, dtype=torch.bfloat16) * 0.05)
         for name, size in {"qkv": (3 * h, h), "o": (h, h), "up": (ffn, h), "down": (h, ffn)}.items()}  # fmt: skip
    for name in ("norm1", "norm2"):
        w[name], w[name + "b"] = (torch.nn.Parameter(torch.ones(h, dtype=torch.bfloat16)) for _ in range(2))

    def run(x: Any) -> Any:
        b, s, _ = x.shape
        y = functional.layer_norm(x, (h,), w["norm1"], w["norm1b"])
        q, k, v = (z.view(b, s, heads, h // heads).transpose(1, 2) for z in functional.linear(y, w["qkv"]).chunk(3, -1))
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + functional.linear(out.transpose(1, 2).reshape(b, s, h), w["o"])
        y = functional.layer_norm(x, (h,), w["norm2"], w["norm2b"])
        return x + functional.linear(functional.gelu(functional.linear(y, w["up"])), w["down"])

    return run, w


@pytest.mark.parametrize(("recompute", "within"), [("none", 0.10), ("full", 0.02)])
@pytest.mark.parametrize("kind", ["plain", "gated", "gated, grouped heads"])
def test_activation_bytes_are_those_that_autograd_keeps(kind: str, recompute: Any, within: float) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.checkpoint import checkpoint

    h, s, b, ffn, kv_heads = 256, 128, 2, 512, 2 if "grouped" in kind else 4
    run, weights = _plain_block(torch, h, 4, ffn) if kind == "plain" else _gated_block(torch, h, 4, kv_heads, ffn)
    fixed = {w.untyped_storage().data_ptr() for w in weights.values()}
    kept: dict[int, int] = {}
    alive = []

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in fixed:
            kept[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)  # so that no address is used twice
        return tensor

    x = torch.randn(b, s, h, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = run(x) if recompute == "none" else checkpoint(run, x, use_reentrant=True)
    out.sum().backward()
    sizes = {"hidden_size": h, "num_attention_heads": 4, "num_key_value_heads": kv_heads, "intermediate_size": ffn}
    model = Model.from_config({**SMALL, **sizes, "model_type": "gpt_neox" if kind == "plain" else "llama"})
    assert activations(model, model.layer(0), b, s, recompute=recompute).total == pytest.approx(sum(kept.values()), rel=within)


def test_bad_work_is_one_line() -> None:
    model = Model.from_config(SMALL)
    with pytest.raises(InputError, match="a segment of -1 new tokens"):
        flops(model, [(-1, 0)])
    with pytest.raises(InputError, match='unknown recompute "some"'):
        activations(model, model.layer(0), 1, 8, recompute="some")  # type: ignore[arg-type]
    with pytest.raises(InputError, match='unknown dtype "fp7"'):
        kv_bytes_per_token(model, "fp7")
    with pytest.raises(InputError, match="layer 2 does not exist"):
        model.layer(2)
