"""Shapes from a config: exact counts by the published table, by the reference implementations, and what a bad config says."""

from __future__ import annotations

import contextlib
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.llm import Batch, Model, Plan, volumes
from armillary.llm.model.families import FAMILIES

PUBLISHED = {
    "gpt2": 124_439_808,
    "opt-1.3b": 1_315_758_080,
    "opt-6.7b": 6_658_473_984,
    "opt-13b": 12_853_473_280,
    "bloom-7b1": 7_069_016_064,
    "falcon-7b": 6_921_720_704,
    "falcon3-10b": 10_305_653_760,
    "llama-2-7b": 6_738_415_616,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.2-1b": 1_235_814_400,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen3-30b-a3b": 30_532_122_624,
    "deepseek-moe-16b": 16_375_728_128,
    "deepseek-v3": 671_026_404_352,
    "mistral-7b": 7_241_732_096,
    "gpt3-175b": 174_604_259_328,
    "bert-base": 109_514_298,
    "bert-large": 335_174_458,
}
SMALL = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "vocab_size": 100,
}  # fmt: skip


@pytest.mark.parametrize(("name", "params"), PUBLISHED.items())
def test_presets_have_the_published_parameters(name: str, params: int) -> None:
    assert Model.preset(name).params() == params


def test_every_preset_reads_and_its_parts_add_up() -> None:
    for name in Model.presets():
        model = Model.preset(name)
        assert sum(model.params_by(part) for part in ("embedding", "attention", "mlp", "norm", "router", "head")) == model.params()
        assert model.params(active=True) <= model.params()


def test_deepseek_v3_meets_37_billion_parameters_a_token_and_has_three_dense_layers() -> None:
    model = Model.preset("deepseek-v3")
    assert model.params(active=True) == 37_552_282_624
    assert [(layer.mlp, count) for layer, count in model.runs()] == [("dense", 3), ("moe", 58)]
    assert model.layer(2).mlp == "dense"
    assert model.layer(3).mlp == "moe"
    assert model.runs(2, 5) == [(model.layer(2), 1), (model.layer(3), 2)]


def test_a_model_travels_without_what_was_counted_of_it() -> None:
    model = Model.preset("mixtral-8x7b")
    volumes(model, Plan(dp=2), Batch(2, 8))
    assert model.memo
    there = pickle.loads(pickle.dumps(model))  # noqa: S301
    assert there == model
    assert not there.memo


def test_a_llama_layer_by_hand() -> None:
    model = Model.from_config(SMALL)
    # 64·64 + 2·64·32 + 64·64 attention, 3·64·96 MLP, two norms; embedding, head and last norm once.
    assert model.params() == 2 * (64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 96 + 2 * 64) + 2 * 100 * 64 + 64
    assert model.params_by("router") == 0
    assert model.head_dim == 16
    assert model.dtype == "bf16"


def test_lora_on_query_and_value() -> None:
    assert Model.preset("llama-3-8b").with_lora(16).lora_params() == 6_815_744
    assert Model.preset("llama-3-8b").with_lora(16, count=3).lora_params() == 3 * 6_815_744
    with pytest.raises(InputError, match='unknown LoRA target "q_porj"'):
        Model.preset("llama-3-8b").with_lora(16, ["q_porj"])


def test_quantised_weights_keep_embeddings_norms_and_head() -> None:
    model = Model.from_config(SMALL)
    matrices = 2 * (64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 96)
    rest = model.params() - matrices
    assert model.weight_bytes() == 2 * model.params()
    assert model.with_quantised(8).weight_bytes() == matrices + 2 * rest
    assert model.with_quantised(4, 32).weight_bytes() == pytest.approx(matrices * (0.5 + 2.5 / 32) + 2 * rest)
    gptq = Model.from_config({**SMALL, "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}})
    assert gptq.weight_bytes() == model.with_quantised(4, 32).weight_bytes()
    head = Model.from_config({**SMALL, "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": -1, "lm_head": True}})
    assert head.weight_bytes() == 0.5 * (matrices + 100 * 64) + 2 * (rest - 100 * 64)


def test_a_router_is_not_quantised_and_mxfp4_is_for_experts() -> None:
    sparse = Model.from_config({**SMALL, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2})
    matrices = sparse.params_by("attention") + sparse.params_by("mlp")
    assert sparse.with_quantised(8).weight_bytes() == matrices + 2 * (sparse.params() - matrices)
    config = {**SMALL, "model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2}
    oss = Model.from_config({**config, "quantization_config": {"quant_method": "mxfp4"}})
    experts = 2 * 4 * 3 * 64 * 96
    assert oss.weight_bytes() == experts * (0.5 + 1 / 32) + 2 * (oss.params() - experts)


def test_windows_follow_layer_types_max_window_layers_and_family() -> None:
    gemma = Model.from_config({**SMALL, "model_type": "gemma2", "num_hidden_layers": 4, "sliding_window": 8})
    assert [gemma.layer(i).window for i in range(4)] == [8, None, 8, None]
    kinds = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    named = Model.from_config({**SMALL, "model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 4,
                               "sliding_window": 8, "layer_types": kinds})  # fmt: skip
    assert [(layer.window, n) for layer, n in named.runs()] == [(None, 1), (8, 2), (None, 1)]
    qwen = {**SMALL, "model_type": "qwen2", "num_hidden_layers": 4, "sliding_window": 8, "max_window_layers": 3}
    assert [layer.window for layer, _ in Model.from_config(qwen).runs()] == [None]
    assert [(layer.window, n) for layer, n in Model.from_config({**qwen, "use_sliding_window": True}).runs()] == [(None, 3), (8, 1)]
    assert Model.preset("mistral-7b").layer(0).window == 4096


def test_an_unknown_family_is_read_as_llama_only_on_request() -> None:
    config = {**SMALL, "model_type": "brand_new"}
    with pytest.raises(InputError, match=r'config: key "model_type": found "brand_new"; expected one of llama, .*gpt_oss'):
        Model.from_config(config)
    assert Model.from_config(config, assume="llama").params() == Model.from_config(SMALL).params()


# The reference implementations

sizes = st.integers(1, 3)


@st.composite
def configs(draw: Any, family: str) -> dict[str, Any]:
    """A small config of a family, with its own oddities switched on and off."""
    head_dim = draw(st.sampled_from([4, 8, 16]))
    kv = draw(st.sampled_from([1, 2, 3]))
    heads = kv * draw(sizes)
    config: dict[str, Any] = {
        "model_type": family, "vocab_size": draw(st.integers(5, 90)), "max_position_embeddings": draw(st.integers(8, 64)),
        "hidden_size": heads * head_dim, "num_hidden_layers": draw(st.integers(1, 4)), "num_attention_heads": heads,
        "intermediate_size": draw(st.integers(3, 70)),
    }  # fmt: skip
    flag = st.booleans()
    if draw(flag):
        config["tie_word_embeddings"] = draw(flag)
    if family not in ("gpt2", "gpt_neox", "opt", "falcon", "bloom", "bert"):
        config["num_key_value_heads"] = kv
        if family in ("llama", "mistral", "qwen3", "qwen3_moe", "gemma", "gemma2", "gpt_oss", "mixtral"):
            config["head_dim"] = 2 * draw(st.integers(1, 9))
        elif family == "qwen2_moe":
            config["head_dim"] = head_dim
    if family in ("llama", "qwen3", "qwen3_moe", "gemma", "gemma2", "gpt_oss", "gpt_neox") and draw(flag):
        config["attention_bias"] = draw(flag)
    if family in ("llama",) and draw(flag):
        config["mlp_bias"] = draw(flag)
    if family == "gpt2":
        config = {
            "model_type": family, "vocab_size": config["vocab_size"], "n_positions": config["max_position_embeddings"],
            "n_embd": config["hidden_size"], "n_layer": config["num_hidden_layers"], "n_head": heads,
            "n_inner": draw(st.sampled_from([None, 10])), **{k: v for k, v in config.items() if k.startswith("tie")},
        }  # fmt: skip
    elif family == "opt":
        config["ffn_dim"] = config.pop("intermediate_size")
        config["word_embed_proj_dim"] = draw(st.sampled_from([config["hidden_size"], 4]))
        config |= {"do_layer_norm_before": draw(flag), "enable_bias": draw(flag), "layer_norm_elementwise_affine": draw(flag)}
    elif family == "phi":
        config["qk_layernorm"] = draw(flag)
    elif family == "falcon":
        del config["intermediate_size"]
        config |= {"new_decoder_architecture": draw(flag), "multi_query": draw(flag), "parallel_attn": draw(flag), "bias": draw(flag)}
        config["num_kv_heads"] = kv
        if draw(flag):
            config["ffn_hidden_size"] = draw(st.integers(3, 70))
        if draw(flag):
            config["num_ln_in_parallel_attn"] = draw(st.sampled_from([1, 2]))
    elif family == "bert":
        config["type_vocab_size"] = draw(st.integers(1, 3))
    elif family in ("mixtral", "gpt_oss"):
        config |= {"num_local_experts": draw(st.integers(2, 6)), "num_experts_per_tok": draw(st.integers(1, 2))}
    elif family in ("qwen2_moe", "qwen3_moe"):
        config |= {"num_experts": draw(st.integers(2, 6)), "num_experts_per_tok": draw(st.integers(1, 2)),
                   "moe_intermediate_size": draw(st.integers(3, 20)), "decoder_sparse_step": draw(st.sampled_from([1, 2])),
                   "mlp_only_layers": draw(st.sampled_from([[], [0]]))}  # fmt: skip
        if family == "qwen2_moe":
            config["shared_expert_intermediate_size"] = draw(st.integers(3, 20))
            config["qkv_bias"] = draw(flag)
    elif family.startswith("deepseek"):
        config |= {"num_key_value_heads": heads, "n_routed_experts": 2 * draw(st.integers(2, 4)), "num_experts_per_tok": 2, "n_group": 1,
                   "topk_group": 1, "n_shared_experts": draw(st.integers(1, 2)), "moe_intermediate_size": draw(st.integers(3, 20)),
                   "first_k_dense_replace": draw(st.integers(0, 2)), "q_lora_rank": draw(st.sampled_from([None, 6])),
                   "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": draw(st.integers(2, 9)),
                   "attention_bias": draw(flag)}  # fmt: skip
    return config


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "deepseek"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_counts_equal_the_reference_implementations(family: str, data: st.DataObject) -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    config = data.draw(configs(family))
    built = transformers.AutoConfig.for_model(**config)
    maker = transformers.AutoModelForMaskedLM if family == "bert" else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        reference = maker.from_config(built)
    reference.tie_weights()
    assert Model.from_config(config).params() == sum(p.numel() for p in reference.parameters())


@given(configs("deepseek"))
def test_the_first_deepseek_has_the_counts_of_qwen2_moe_without_the_gates_of_shared_experts(config: dict[str, Any]) -> None:
    # There is no reference implementation of it among the others.
    config["attention_bias"] = False
    first, ffn = config["first_k_dense_replace"], config["moe_intermediate_size"]
    like = {
        **config, "model_type": "qwen2_moe", "num_experts": config["n_routed_experts"], "mlp_only_layers": list(range(first)),
        "shared_expert_intermediate_size": config["n_shared_experts"] * ffn, "qkv_bias": False,
    }  # fmt: skip
    sparse = max(0, config["num_hidden_layers"] - first)
    assert Model.from_config(config).params() == Model.from_config(like).params() - sparse * config["hidden_size"]


# Bad input


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hidden_size": None}, 'key "hidden_size": is missing'),
        ({"hidden_size": 0}, 'key "hidden_size": found 0; expected 1 to 2'),
        ({"hidden_size": -4}, 'key "hidden_size": found -4'),
        ({"hidden_size": 64.0}, 'key "hidden_size": found 64.0; expected a whole number'),
        ({"hidden_size": "64"}, 'key "hidden_size": found "64"'),
        ({"hidden_size": True}, 'key "hidden_size": found true'),
        ({"vocab_size": 2**41}, r'key "vocab_size": found 2199023255552; expected 1 to 2\^40'),
        ({"num_hidden_layers": 10**6}, "expected at most 100000"),
        ({"num_key_value_heads": 3}, 'key "num_key_value_heads": found 3 for 4 heads'),
        ({"num_attention_heads": 7, "num_key_value_heads": 7}, 'key "hidden_size": found 64 for 7 heads'),
        ({"torch_dtype": "float7"}, 'unknown dtype "float7"'),
        ({"quantization_config": {"quant_method": "magic"}}, 'unknown quant_method "magic"'),
        ({"quantization_config": {"quant_method": "gptq", "bits": 3}}, "found 3; expected 4 or 8"),
        ({"quantization_config": 4}, "expected an object"),
        ({"attention_bias": "yes"}, "expected true or false"),
        ({"model_type": 3}, 'key "model_type": found 3'),
        ({"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 3}, "found 3 of 2 experts"),
        ({"model_type": "gemma2", "sliding_window": 4, "layer_types": ["odd", "odd"]}, 'key "layer_types"'),
        ({"model_type": "deepseek_v3"}, 'key "kv_lora_rank": is missing'),
    ],
)  # fmt: skip
def test_a_bad_config_names_its_key(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**SMALL, **change}))
    with pytest.raises(InputError, match=says) as caught:
        Model.from_config(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[1]", "found a list"),
        ('{"hidden_size": NaN}', "not JSON"),
        ("[" * 100_000, "not JSON|nested"),
        ('{"a":' * 21 + "{}" + "}" * 21, "nested more than 20 deep"),
        (" " * (1 << 20) + "{}", "at most 1 MiB"),
    ],
    ids=["open", "list", "nan", "brackets", "deep", "large"],
)
def test_a_bad_file_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        Model.from_config(path)


def test_a_missing_file_and_an_unknown_preset() -> None:
    with pytest.raises(InputError, match=r"nowhere\.json: No such file"):
        Model.from_config("nowhere.json")
    with pytest.raises(InputError, match=r'unknown model preset "llama-3-8x" \(did you mean'):
        Model.preset("llama-3-8x")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), lambda x: st.lists(x, max_size=3), max_leaves=4),
       st.sampled_from(sorted({*SMALL, "sliding_window", "quantization_config", "layer_types", "torch_dtype", "tie_word_embeddings"})))  # fmt: skip
def test_no_value_breaks_the_reader(value: Any, key: str) -> None:
    for family in FAMILIES:
        with contextlib.suppress(InputError):
            Model.from_config({**SMALL, "model_type": family, key: value})
