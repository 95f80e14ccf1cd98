"""A small model that is really trained, so that quantising it really hurts: eight Llama layers on the bytes of built-in English text.

The text comes with the interpreter (`pydoc_data.topics`, half a million characters of documentation). The last tenth is
held out for perplexity. Training takes well under a minute on two cores.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .indicator import OmegaTable, omega, quantised_weights

if TYPE_CHECKING:
    from armillary.llm import Tiny

CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 4,
    "intermediate_size": 176, "vocab_size": 256, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}  # fmt: skip
LENGTH, BATCH, RATE = 96, 8, 4e-3


@functools.cache
def text() -> tuple[bytes, bytes]:
    """Returns (training, held out) text."""
    from pydoc_data.topics import topics

    whole = "\n\n".join(topics[name] for name in sorted(topics)).encode("utf-8", "replace")
    cut = len(whole) * 9 // 10
    return whole[:cut], whole[cut:]


def forward(tiny: Tiny, ids: Any, weights: Mapping[str, Any] | None = None) -> Any:
    """Returns logits [sequences, tokens, vocabulary] of whole sequences: the mathematics of `Tiny`, batched and differentiable."""
    import torch
    from torch.nn import functional as fn

    s, w = tiny.shape, weights or tiny.weights
    batch, length = ids.shape
    rates = 1.0 / (s.theta ** (torch.arange(0, s.head_dim, 2, dtype=torch.float64) / s.head_dim))
    angle = torch.arange(length, dtype=torch.float64)[:, None] * rates
    both = torch.cat([angle, angle], -1)
    cos, sin = both.cos().float(), both.sin().float()

    def norm(x: Any, weight: Any) -> Any:
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + s.eps))

    def heads(x: Any, count: int) -> Any:
        return x.view(batch, length, count, s.head_dim).transpose(1, 2)

    def turn(x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    x = w["model.embed_tokens.weight"][ids]
    for i in range(s.layers):
        at = f"model.layers.{i}."
        h = norm(x, w[f"{at}input_layernorm.weight"])
        q, k, v = (fn.linear(h, w[f"{at}self_attn.{name}_proj.weight"]) for name in "qkv")
        q, k, v = turn(heads(q, s.heads)), turn(heads(k, s.kv_heads)), heads(v, s.kv_heads)
        k, v = (y.repeat_interleave(s.heads // s.kv_heads, 1) for y in (k, v))
        mixed = fn.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, -1)
        x = x + fn.linear(mixed, w[f"{at}self_attn.o_proj.weight"])
        h = norm(x, w[f"{at}post_attention_layernorm.weight"])
        gate = fn.silu(fn.linear(h, w[f"{at}mlp.gate_proj.weight"])) * fn.linear(h, w[f"{at}mlp.up_proj.weight"])
        x = x + fn.linear(gate, w[f"{at}mlp.down_proj.weight"])
    return fn.linear(norm(x, w["model.norm.weight"]), w["model.embed_tokens.weight" if s.tied else "lm_head.weight"])


@contextmanager
def _one_thread() -> Iterator[None]:
    """Runs PyTorch on one thread, because such small matrices gain nothing from a second one and lose much on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@functools.lru_cache(maxsize=4)
def trained(steps: int = 200, seed: int = 0) -> Tiny:
    """Returns the model after `steps` of AdamW on the training text; the same seed gives the same model on one machine."""
    with _one_thread():
        return _trained(steps, seed)


def _trained(steps: int, seed: int) -> Tiny:
    import torch
    from torch.nn import functional as fn

    from armillary.llm import Tiny

    tiny = Tiny.make(CONFIG, seed=seed)
    # Residual branches begin small, as in GPT-2, so that eight layers train in a few hundred steps.
    for name, weight in tiny.weights.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight /= math.sqrt(2 * tiny.shape.layers)
    data = torch.frombuffer(bytearray(text()[0]), dtype=torch.uint8)
    draw = torch.Generator().manual_seed(seed)
    weights = {name: weight.clone().requires_grad_() for name, weight in tiny.weights.items()}
    optimiser = torch.optim.AdamW(weights.values(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.01)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 20) * (0.5 + 0.5 * math.cos(math.pi * step / steps))
        starts = torch.randint(0, len(data) - LENGTH - 1, (BATCH,), generator=draw)
        rows = torch.stack([data[int(i) : int(i) + LENGTH + 1] for i in starts]).long()
        loss = fn.cross_entropy(forward(tiny, rows[:, :-1], weights).flatten(0, 1), rows[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        optimiser.step()
    return Tiny(tiny.shape, {name: weight.detach() for name, weight in weights.items()}, "tiny-trained")


@functools.lru_cache(maxsize=4)
def trained_omega(steps: int = 200, seed: int = 0) -> OmegaTable:
    """Returns ω of the trained model on its training text, with an average layer at 4 bits as the unit."""
    with _one_thread():
        found = omega(trained(steps, seed), text()[0], sequences=16, tokens=256)
    return replace(found, values=found.values / found.of((4,)).mean())


def loss(tiny: Tiny, bits: Sequence[int] | None = None, sequences: int = 64) -> float:
    """Returns the mean negative log-likelihood per byte of the held-out text, with each layer rounded to its bits; measured."""
    import torch
    from torch.nn import functional as fn

    weights = tiny.weights if bits is None else quantised_weights(tiny.weights, bits)
    data = torch.frombuffer(bytearray(text()[1]), dtype=torch.uint8).long()
    count = min(sequences, (len(data) - 1) // LENGTH)
    stride = (len(data) - 1) // count
    rows = torch.stack([data[i * stride : i * stride + LENGTH + 1] for i in range(count)])
    with _one_thread(), torch.no_grad():
        logits = forward(tiny, rows[:, :-1], weights)
        return float(fn.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()))


def perplexity_ratio(tiny: Tiny, bits: Sequence[int], sequences: int = 64, *, plain: float | None = None) -> float:
    """Returns the perplexity of the quantised model over that of the plain one, whose loss is `plain` if already known; measured."""
    return math.exp(loss(tiny, bits, sequences) - (loss(tiny, None, sequences) if plain is None else plain))
