"""Records the routing of a real mixture: `tiny-moe` is trained for a minute or two on English prose, and routes other prose.

The prose is Python's own language reference, which comes with every Python (`pydoc_data.topics`); tokens are bytes. Training keeps the
experts' load even by Switch Transformer's auxiliary loss (Fedus et al., 2022), as trained mixtures do. PyTorch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.llm.tiny.tokens import encode

from .trace import RoutingTrace

#: The tokens per training sequence, sequences per step, learning rate, and weight of even load.
LENGTH, SEQUENCES, RATE, EVEN = 96, 8, 2e-3, 0.02
#: The tokens of a request whose routing is recorded, and those of its prompt.
REQUEST, PROMPT = 128, 96


@functools.lru_cache(maxsize=1)
def prose() -> tuple[npt.NDArray[np.int64], ...]:
    """Returns the longer articles as tokens, in the order of their titles."""
    from pydoc_data.topics import topics

    return tuple(np.array(encode(topics[title]), np.int64) for title in sorted(topics) if len(topics[title]) > 4 * REQUEST)


@functools.lru_cache(maxsize=2)
def trained(steps: int, seed: int) -> Any:
    """Returns `tiny-moe` after this number of training steps on every second article."""
    from armillary.llm.tiny.transformer import Tiny

    with _one_thread():
        return _train(Tiny.make("tiny-moe", seed=seed), steps, seed)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Runs PyTorch on one thread, because such small products end before a second thread wakes up, and waiting for it takes most time."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _train(model: Any, steps: int, seed: int) -> Any:
    import torch

    text = torch.from_numpy(np.concatenate(prose()[::2]))
    for weight in model.weights.values():
        weight.requires_grad_(True)
    optimiser = torch.optim.AdamW(model.weights.values(), lr=RATE)
    draws = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        start = torch.randint(0, len(text) - LENGTH - 1, (SEQUENCES,), generator=draws)
        batch = text[start[:, None] + torch.arange(LENGTH + 1)]
        logits, uneven = forward(model, batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()) + EVEN * uneven
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    for weight in model.weights.values():
        weight.requires_grad_(False)
    return model


def forward(model: Any, ids: Any) -> tuple[Any, Any]:
    """Returns (logits [sequences, tokens, vocabulary], unevenness of the experts' load, 1 if even) of whole sequences, for training."""
    import torch
    from torch.nn import functional as fn

    s, w = model.shape, model.weights
    batch, length = ids.shape
    rates = 1.0 / (s.theta ** (torch.arange(0, s.head_dim, 2, dtype=torch.float64) / s.head_dim))
    angle = torch.arange(length, dtype=torch.float64)[:, None] * rates
    cos, sin = (torch.cat([f(angle)] * 2, -1).float()[None, :, None] for f in (torch.cos, torch.sin))

    def norm(x: Any, name: str) -> Any:
        return w[name] * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + s.eps)

    def turned(x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return (x * cos + torch.cat([-b, a], -1) * sin).transpose(1, 2)

    x, uneven = w["model.embed_tokens.weight"][ids], torch.zeros(())
    for i in range(s.layers):
        at = f"model.layers.{i}."
        h = norm(x, f"{at}input_layernorm.weight")
        q, k, v = (fn.linear(h, w[f"{at}self_attn.{n}_proj.weight"]).view(batch, length, -1, s.head_dim) for n in "qkv")
        seen = fn.scaled_dot_product_attention(turned(q), turned(k), v.transpose(1, 2), is_causal=True, enable_gqa=True)
        x = x + fn.linear(seen.transpose(1, 2).flatten(2), w[f"{at}self_attn.o_proj.weight"])
        h = norm(x, f"{at}post_attention_layernorm.weight").flatten(0, 1)
        chance = torch.softmax(h @ w[f"{at}block_sparse_moe.gate.weight"].T, -1)
        share, chosen = torch.topk(chance, s.top_k, -1)
        share = share / share.sum(-1, keepdim=True)
        out = torch.zeros_like(h)
        for e in range(s.experts):
            rows, which = torch.nonzero(chosen == e, as_tuple=True)
            w1, w2, w3 = (w[f"{at}block_sparse_moe.experts.{e}.{n}.weight"] for n in ("w1", "w2", "w3"))
            y = (fn.silu(h[rows] @ w1.T) * (h[rows] @ w3.T)) @ w2.T
            out = out.index_add(0, rows, y * share[rows, which, None])
        used = torch.bincount(chosen.flatten(), minlength=s.experts) / chosen.numel()
        uneven = uneven + s.experts * (used * chance.mean(0)).sum() / s.layers
        x = x + out.view_as(x)
    x = norm(x, "model.norm.weight")
    return x @ w["model.embed_tokens.weight" if s.tied else "lm_head.weight"].T, uneven


@functools.lru_cache(maxsize=2)
def recorded(steps: int, requests: int, seed: int) -> RoutingTrace:
    """Records the trained model's routing on pieces of the articles on which it was not trained, from each article in turn."""
    import torch

    model = trained(steps, seed)
    held = prose()[1::2]
    rng = np.random.default_rng(seed)
    pieces = []
    for r in range(requests):
        article = held[r % len(held)]
        at = int(rng.integers(len(article) - REQUEST))
        pieces.append(article[at : at + REQUEST])
    found: list[list[npt.NDArray[np.int16]]] = [[] for _ in range(model.shape.layers)]
    model.on_routing = lambda layer, chosen: found[layer].append(chosen.numpy().astype(np.int16))
    with torch.no_grad(), _one_thread():
        for piece in pieces:
            model.logits(torch.from_numpy(piece))
    model.on_routing = None
    return RoutingTrace(
        np.concatenate(pieces).astype(np.int32), np.tile(np.arange(REQUEST, dtype=np.int32), requests),
        np.repeat(np.arange(requests, dtype=np.int32), REQUEST), np.stack([np.concatenate(layer) for layer in found]),
        model.shape.experts, np.full(requests, PROMPT, np.int32),
    )  # fmt: skip


def bits_per_byte(model: Any, tokens: int = 2048) -> float:
    """Returns the bits per byte on text on which the model was not trained; 8 if it knows nothing, and less is better."""
    import torch

    text = torch.from_numpy(np.concatenate(prose()[1::2])[: tokens + 1])
    with torch.no_grad():
        total = 0.0
        for start in range(0, tokens, LENGTH):
            part = text[start : min(start + LENGTH, tokens) + 1]
            total += float(torch.nn.functional.cross_entropy(model.logits(part[:-1]), part[1:], reduction="sum"))
    return total / math.log(2) / tokens
