"""The work of this arena is a model, its routing in two halves, and the machine; it is drawn, recorded from a small model, or read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.llm.model.shapes import Model

from .routing.synthetic import TOPICS, draw
from .routing.trace import RoutingTrace
from .simulation.evaluation import Attention, Ground

#: The published range of the top-k mass of a token number's experts, from the first layer to the last.
AFFINITY = (0.833, 0.976)
#: DeepSeek-V2-Lite, as its config.json says.
DEEPSEEK_V2_LITE: dict[str, Any] = {
    "model_type": "deepseek_v2", "torch_dtype": "bfloat16", "tie_word_embeddings": False, "attention_bias": False, "hidden_size": 2048,
    "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16,
    "num_key_value_heads": 16, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
    "moe_layer_freq": 1, "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "vocab_size": 102400, "max_position_embeddings": 163840,
}  # fmt: skip


@dataclass(frozen=True)
class ExpertWork:
    """Techniques learn from the routing `seen` and are judged on the routing `asked`, with `wave` requests served together."""

    model: Model
    seen: RoutingTrace
    asked: RoutingTrace
    ground: Ground
    attention: Attention
    wave: int


def model_of(name: str) -> Model:
    """Returns a preset or config.json with experts."""
    if name == "deepseek-v2-lite":
        return Model.from_config(DEEPSEEK_V2_LITE, name=name)
    if name == "tiny-moe":
        from armillary.llm.tiny.transformer import BUILT_IN

        return Model.from_config(BUILT_IN[name], name=name)
    found = Model.find(name)
    if found.moe is None:
        raise InputError(f"{found.name} has no experts")
    return found


def drawn(
    model: str, link: str, attention: Attention, devices: int, rng: np.random.Generator, *, affinity: str, requests: int, layers: int,
    vocabulary: int, prompt: int, output: int, per_device: int,
) -> ExpertWork:  # fmt: skip
    """Draws routing of a model's shape; affinity is "published", "none", or "other topics" (learnt on some, judged on others)."""
    of = model_of(model)
    assert of.moe is not None
    experts, k = of.moe.experts, of.moe.top_k
    share = np.full(layers, k / experts) if affinity == "none" else np.linspace(*AFFINITY, layers)
    how: dict[str, Any] = {
        "experts": experts, "k": k, "layers": layers, "affinity": share, "vocabulary": vocabulary, "prompt": prompt, "output": output,
    }  # fmt: skip
    if affinity == "other topics":
        half = TOPICS // 2
        seed = int(rng.integers(2**31))
        # Both draws have the same token numbers and favourites; only the requests' topics differ.
        seen = draw(requests // 2, **how, rng=np.random.default_rng(seed), topics=tuple(range(half)))
        asked = draw(requests // 2, **how, rng=np.random.default_rng(seed), topics=tuple(range(half, TOPICS)))
    else:
        seen, asked = draw(requests, **how, rng=rng).halves()
    wave = per_device * (devices if attention == "dp" else 1)
    if attention == "tp":
        asked = asked.take(np.arange(min(asked.requests, 6 * wave)))
    return ExpertWork(of, seen, asked, Ground.of(link, devices), attention, wave)


def real(link: str, attention: Attention, devices: int, *, steps: int, requests: int, per_device: int, seed: int) -> ExpertWork:
    """Records the routing of `tiny-moe`, trained here for this number of steps, on text that it has not seen."""
    from .routing.tiny_model import recorded

    seen, asked = recorded(steps, requests, seed).halves()
    wave = per_device * (devices if attention == "dp" else 1)
    return ExpertWork(model_of("tiny-moe"), seen, asked, Ground.of(link, devices), attention, wave)


def of_file(path: Path, model: str, link: str, attention: Attention, devices: int, wave: int) -> ExpertWork:
    """Reads a user's routing trace, whose first half is to learn from."""
    of = model_of(model)
    assert of.moe is not None
    trace = RoutingTrace.read(path, experts=of.moe.experts)
    if trace.k != of.moe.top_k:
        raise InputError(f"found {trace.k} experts per token; {of.name} has {of.moe.top_k}", where=str(path))
    seen, asked = trace.halves()
    return ExpertWork(of, seen, asked, Ground.of(link, devices), attention, wave)
