"""The transformer that runs here, against Transformers, and its engine, whose tokens may not depend on how it batches."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.llm.serving import state as columns
from armillary.llm.tiny.generation import Engine, Sampling
from armillary.llm.tiny.transformer import Tiny

MODELS = {name: Tiny.make(name, seed=1, dtype=torch.float64) for name in ("tiny-llama", "tiny-moe")}


def _alone(model, prompt, count, adapter=-1):
    """Greedy tokens, each from a pass over everything."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(model.logits(ids, adapter)[-1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-moe"])
def test_logits_are_those_of_transformers(tmp_path, name):
    transformers = pytest.importorskip("transformers")
    model = Tiny.make(name, seed=3)
    model.save(tmp_path)
    ids = torch.randint(0, 512, (40,), generator=torch.Generator().manual_seed(5))
    with torch.inference_mode():
        theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()(ids[None]).logits[0]
        ours = model.logits(ids)
    assert theirs.abs().max() > 0.5
    assert (ours - theirs).abs().max() < 1e-4


def test_a_saved_model_comes_back(tmp_path):
    model = MODELS["tiny-moe"]
    model.save(tmp_path)
    again = Tiny.load(tmp_path)
    ids = list(range(30))
    assert torch.equal(model.logits(ids), again.logits(ids))


#: Large enough that the paths of a BLAS differ, small enough to load 64 times.
SMALL = {
    "model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 88, "vocab_size": 64, "num_local_experts": 4, "num_experts_per_tok": 2,
}  # fmt: skip


def _shifted(file, pad):
    """The content of a safetensors file whose data begins `pad` bytes later (the format lets spaces follow the header)."""
    content = file.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    return (end - 8 + pad).to_bytes(8, "little") + content[8:end] + b" " * pad + content[end:]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_logits_do_not_depend_on_where_the_weights_lie(tmp_path, dtype):
    from safetensors.torch import load_file

    ids = list(range(30))
    model = Tiny.make(SMALL, seed=1, dtype=dtype)
    model.save(tmp_path)
    model.add_lora(_adapter(tmp_path / "adapter", model, 4, 2))
    plain, adapted = model.logits(ids), model.logits(ids, 0)
    files = [
        (tmp_path / name, [_shifted(tmp_path / name, pad) for pad in range(64)])
        for name in ("model.safetensors", "adapter/adapter_model.safetensors")
    ]
    begins = set()
    for pad in range(64):
        for file, contents in files:
            file.write_bytes(contents[pad])
        begins |= {weight.data_ptr() % 64 for weight in load_file(tmp_path / "model.safetensors").values()}
        again = Tiny.load(tmp_path)
        again.add_lora(tmp_path / "adapter")
        assert torch.equal(plain, again.logits(ids))
        assert torch.equal(adapted, again.logits(ids, 0))
    assert begins == set(range(64))


prompts_lists = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(1, 8)), min_size=1, max_size=6)


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-moe"])
@settings(max_examples=10, deadline=None)
@given(
    rows=prompts_lists, block=st.sampled_from([2, 4, 16]), budget=st.integers(1, 48), seqs=st.integers(1, 4), spare=st.integers(0, 6),
    policy=st.sampled_from(["vllm", "sarathi", "sglang", "priority"]), cache=st.booleans(),
)  # fmt: skip
def test_tokens_do_not_depend_on_batching(name, rows, block, budget, seqs, spare, policy, cache):
    model = MODELS[name]
    rng = np.random.default_rng(7)
    beginnings = rng.integers(0, 512, (4, 40))
    prompts = [beginnings[k, :n].tolist() for k, n, _ in rows]
    counts = [o for _, _, o in rows]
    blocks = max(-(-(len(p) + o) // block) for p, o in zip(prompts, counts, strict=True)) + spare
    engine = Engine(model, max_seqs=seqs, blocks=blocks, block=block, max_batched_tokens=budget, policy=policy, prefix_cache=cache)
    got = engine.generate(prompts, counts)
    assert got == [_alone(model, p, o) for p, o in zip(prompts, counts, strict=True)]
    assert engine.state.eng[0, columns.FREE] == blocks


def test_preemption_and_prefixes_really_happen():
    model = MODELS["tiny-llama"]
    prompt = list(range(33))
    engine = Engine(model, blocks=12, block=4, max_batched_tokens=64)
    numbers = [engine.submit(prompt, 8) for _ in range(4)]
    while any(not engine.tickets[q].finished for q in numbers):
        engine.step()
    done = [engine.take(q) for q in numbers]
    assert sum(t.preemptions for t in done) > 0
    assert max(t.cached for t in done) == 32
    assert {tuple(t.tokens) for t in done} == {tuple(_alone(model, prompt, 8))}


def test_samples_depend_on_the_seed_alone():
    model = MODELS["tiny-llama"]
    prompt = [1, 2, 3]
    one = Engine(model).generate([prompt], 12, sampling=Sampling(0.9, 0.95, seed=4))[0]
    many = Engine(model, max_batched_tokens=5).generate([[9] * 20, prompt, [8] * 11], 12, sampling=Sampling(0.9, 0.95, seed=4))[1]
    assert one == many
    assert one != Engine(model).generate([prompt], 12, sampling=Sampling(0.9, 0.95, seed=5))[0]


def test_samples_have_the_models_chances():
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05]))
    drawn = np.bincount([Sampling(1.0, 1.0, seed=s).draw(logits, 3) for s in range(4000)], minlength=4) / 4000
    assert drawn == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.03)
    cut = np.bincount([Sampling(1.0, 0.7, seed=s).draw(logits, 3) for s in range(2000)], minlength=4) / 2000
    assert cut == pytest.approx([0.625, 0.375, 0, 0], abs=0.04)
    assert Sampling(0.0).draw(logits, 0) == 0


def _adapter(folder, model, rank, seed):
    from safetensors.torch import save_file

    folder.mkdir()
    rng = torch.Generator().manual_seed(seed)
    tensors = {}
    for i in range(model.shape.layers):
        for name in ("q_proj", "v_proj"):
            out, into = model.weights[f"model.layers.{i}.self_attn.{name}.weight"].shape
            at = f"base_model.model.model.layers.{i}.self_attn.{name}."
            tensors[f"{at}lora_A.weight"] = torch.randn((rank, into), generator=rng) * 0.2
            tensors[f"{at}lora_B.weight"] = torch.randn((out, rank), generator=rng) * 0.2
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank, "lora_alpha": 2 * rank, "target_modules": ["q_proj", "v_proj"]}))
    return folder


def test_adapters_are_added_to_the_weights(tmp_path):
    model = Tiny.make("tiny-llama", seed=2, dtype=torch.float64)
    for k, rank in enumerate((4, 8)):
        assert model.add_lora(_adapter(tmp_path / f"a{k}", model, rank, k)) == k
    merged = Tiny(model.shape, {key: value.clone() for key, value in model.weights.items()})
    for key, (a, b) in model.loras[1].pairs.items():
        merged.weights[key] += b @ a
    ids = list(range(20))
    assert torch.allclose(model.logits(ids, 1), merged.logits(ids), atol=1e-10)
    prompts = [ids] * 3 + [[5, 6, 7]]
    got = Engine(model, slots=1, max_batched_tokens=16).generate(prompts, 6, adapters=[-1, 0, 1, 1])
    assert got == [_alone(model, p, 6, a) for p, a in zip(prompts, [-1, 0, 1, 1], strict=True)]
    assert got[0] != got[2]


def test_a_stop_an_end_and_an_abort():
    model = MODELS["tiny-llama"]
    alone = _alone(model, [1, 2, 3], 10)
    engine = Engine(model)
    q = engine.submit([1, 2, 3], 10, stop=[alone[4]])
    other = engine.submit([4, 5, 6], 50)
    while not engine.tickets[q].finished:
        engine.step()
    assert engine.take(q).tokens == alone[: alone.index(alone[4]) + 1]
    engine.abort(other)
    assert engine.take(other).finished == "abort"
    assert engine.step() == []
    assert engine.state.eng[0, columns.FREE] == 512


def test_routing_can_be_watched():
    model = Tiny.make("tiny-moe", seed=1)
    seen = []
    model.on_routing = lambda layer, chosen: seen.append((layer, tuple(chosen.shape)))
    model.logits([1, 2, 3, 4])
    assert seen == [(i, (4, 2)) for i in range(4)]


@pytest.mark.parametrize(
    "call",
    [
        lambda tmp: Tiny.make("tiny-gpt"),
        lambda tmp: Tiny.load(tmp),
        lambda tmp: Engine(MODELS["tiny-llama"], policy="orca"),
        lambda tmp: Engine(MODELS["tiny-llama"], blocks=0),
        lambda tmp: Engine(MODELS["tiny-llama"]).submit([], 3),
        lambda tmp: Engine(MODELS["tiny-llama"]).submit([600], 3),
        lambda tmp: Engine(MODELS["tiny-llama"], blocks=2).submit([1] * 30, 30),
        lambda tmp: Engine(MODELS["tiny-llama"]).submit([1], 3, adapter=0),
        lambda tmp: MODELS["tiny-llama"].add_lora(tmp),
        lambda tmp: Sampling(-1.0),
        lambda tmp: Sampling(1.0, 0.0),
    ],
)
def test_bad_input_is_refused_in_a_line(tmp_path, call):
    with pytest.raises(InputError) as caught:
        call(tmp_path)
    assert "\n" not in str(caught.value)


def test_broken_folders_are_refused(tmp_path):
    MODELS["tiny-llama"].save(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 40)
    with pytest.raises(InputError, match="not a safetensors file"):
        Tiny.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="expected JSON"):
        Tiny.load(tmp_path)
    MODELS["tiny-llama"].save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | {"hidden_size": 64, "head_dim": 16}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="expected"):
        Tiny.load(tmp_path)


@pytest.mark.parametrize("change", [
    {"rope_theta": "../x"}, {"rope_theta": 0}, {"rms_norm_eps": []}, {"max_position_embeddings": 1e300}, {"num_hidden_layers": 1 << 40},
    {"num_local_experts": -1}, {"num_local_experts": 4, "num_experts_per_tok": 9}, {"head_dim": 33},
])  # fmt: skip
def test_a_config_with_impossible_numbers_is_refused(tmp_path, change):
    MODELS["tiny-llama"].save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="expected"):
        Tiny.load(tmp_path)


def test_a_broken_adapter_is_refused(tmp_path):
    (tmp_path / "adapter_model.safetensors").write_bytes(b"\xff" * 40)
    for config in ('{"r": 2}', '{"r": 0}', '{"r": "x"}', "[]", '{"r": 1, "lora_alpha": []}'):
        (tmp_path / "adapter_config.json").write_text(config)
        with pytest.raises(InputError, match="not a PEFT adapter"):
            MODELS["tiny-llama"].add_lora(tmp_path)
