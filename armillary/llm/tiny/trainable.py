"""The tiny transformer as a PyTorch module that trains, in two styles.

`llama` is `Tiny`'s own model: its parameters have the names of `model.safetensors`, so that `Tiny(shape, model.state_dict())` serves what
was trained. `nanochat` follows the small model of that project: norms without weights (also after the embedding and for queries and
keys), squared ReLU, no biases, and output projections that begin at zero.

A pipeline cuts the model into `pieces`: each is a module of its own, and one after the other they give `forward`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from armillary.errors import InputError, unknown
from armillary.llm.tiny.transformer import Shape, rms_norm, rotate, rotation

Style = Literal["llama", "nanochat"]
#: The target of a token that the loss leaves out.
NO_TARGET = -1


class Norm(nn.Module):
    """Root-mean-square norm over the last axis; without a weight if `size` is None."""

    def __init__(self, size: int | None, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = None if size is None else nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [..., size]."""
        return fn.rms_norm(x, (x.shape[-1],), eps=self.eps) if self.weight is None else rms_norm(x, self.weight, self.eps)


class Attention(nn.Module):
    """Causal attention with rotary positions and grouped queries."""

    def __init__(self, shape: Shape, style: Style) -> None:
        super().__init__()
        self.shape = shape
        wide, narrow = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, wide, bias=shape.qkv_bias)
        self.k_proj = nn.Linear(shape.hidden, narrow, bias=shape.qkv_bias)
        self.v_proj = nn.Linear(shape.hidden, narrow, bias=shape.qkv_bias)
        self.o_proj = nn.Linear(wide, shape.hidden, bias=False)
        self.norm = Norm(None, shape.eps) if style == "nanochat" else None

    def forward(self, x: Tensor) -> Tensor:
        """Attend within each sequence of [batch, tokens, hidden]."""
        s, (batch, tokens, _) = self.shape, x.shape
        cos, sin = (part.to(x.dtype) for part in rotation(torch.arange(tokens, device=x.device), s.head_dim, s.theta))
        q = rotate(self.q_proj(x).view(batch, tokens, s.heads, s.head_dim), cos, sin)
        k = rotate(self.k_proj(x).view(batch, tokens, s.kv_heads, s.head_dim), cos, sin)
        v = self.v_proj(x).view(batch, tokens, s.kv_heads, s.head_dim)
        if self.norm is not None:
            q, k = self.norm(q), self.norm(k)
        groups = s.heads // s.kv_heads
        q, k, v = q.transpose(1, 2), k.transpose(1, 2).repeat_interleave(groups, 1), v.transpose(1, 2).repeat_interleave(groups, 1)
        # Written out, because the fused kernels choose their order of additions by what the CPU has.
        score = q @ k.transpose(-1, -2) / math.sqrt(s.head_dim)
        ahead = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
        mixed = torch.softmax(score.masked_fill(ahead, -math.inf), -1) @ v
        found: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, tokens, -1))
        return found


class Gated(nn.Module):
    """Llama's feed-forward part: a gate of SiLU times a linear map, and back."""

    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, ffn, bias=False)
        self.up_proj = nn.Linear(hidden, ffn, bias=False)
        self.down_proj = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., hidden] to the same shape."""
        found: Tensor = self.down_proj(fn.silu(self.gate_proj(x)) * self.up_proj(x))
        return found


class Squared(nn.Module):
    """nanochat's feed-forward part: a linear map, the square of ReLU, and back."""

    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.up_proj = nn.Linear(hidden, ffn, bias=False)
        self.down_proj = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., hidden] to the same shape."""
        found: Tensor = self.down_proj(fn.relu(self.up_proj(x)).square())
        return found


class Expert(nn.Module):
    """One of Mixtral's experts."""

    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(hidden, ffn, bias=False)
        self.w2 = nn.Linear(ffn, hidden, bias=False)
        self.w3 = nn.Linear(hidden, ffn, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map [tokens, hidden] to the same shape."""
        found: Tensor = self.w2(fn.silu(self.w1(x)) * self.w3(x))
        return found


class Mixture(nn.Module):
    """Mixtral's feed-forward part: each token goes to `top_k` experts, whose shares add up to 1."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.top_k = shape.top_k
        self.gate = nn.Linear(shape.hidden, shape.experts, bias=False)
        self.experts = nn.ModuleList(Expert(shape.hidden, shape.ffn) for _ in range(shape.experts))
        #: Called with the experts of the tokens [tokens, top_k] after every routing.
        self.on_routing: Callable[[Tensor], None] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., hidden] to the same shape."""
        flat = x.reshape(-1, x.shape[-1])
        chance = torch.softmax(self.gate(flat), -1, dtype=torch.promote_types(x.dtype, torch.float32))
        share, chosen = torch.topk(chance, self.top_k, dim=-1)
        share = (share / share.sum(-1, keepdim=True)).to(x.dtype)
        if self.on_routing is not None:
            self.on_routing(chosen.detach())
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows, which = torch.nonzero(chosen == number, as_tuple=True)
            # An expert without a token still takes part, so that its gradient is zero and not absent.
            out = out.index_add(0, rows, expert(flat[rows]) * share[rows, which, None])
        return out.view_as(x)


class Block(nn.Module):
    """One layer: attention and a feed-forward part, each added to what it was given."""

    def __init__(self, shape: Shape, style: Style) -> None:
        super().__init__()
        size = None if style == "nanochat" else shape.hidden
        self.input_layernorm = Norm(size, shape.eps)
        self.self_attn = Attention(shape, style)
        self.post_attention_layernorm = Norm(size, shape.eps)
        self.mixture = bool(shape.experts)
        if self.mixture:
            self.block_sparse_moe = Mixture(shape)
        else:
            self.mlp = Squared(shape.hidden, shape.ffn) if style == "nanochat" else Gated(shape.hidden, shape.ffn)

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, tokens, hidden] to the same shape."""
        x = x + self.self_attn(self.input_layernorm(x))
        feed_forward = self.block_sparse_moe if self.mixture else self.mlp
        found: Tensor = x + feed_forward(self.post_attention_layernorm(x))
        return found


class First(nn.Module):
    """The embedding, and the norm after it where the style has one."""

    def __init__(self, embedding: nn.Embedding, norm: Norm | None) -> None:
        super().__init__()
        self.embedding, self.norm = embedding, norm

    def forward(self, ids: Tensor) -> Tensor:
        """Map token ids [batch, tokens] to [batch, tokens, hidden]."""
        x: Tensor = self.embedding(ids)
        return x if self.norm is None else self.norm(x)


class Last(nn.Module):
    """The last norm and the map to the vocabulary."""

    def __init__(self, norm: Norm, head: nn.Linear) -> None:
        super().__init__()
        self.norm, self.head = norm, head

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, tokens, hidden] to logits [batch, tokens, vocabulary]."""
        found: Tensor = self.head(self.norm(x))
        return found


class _Body(nn.Module):
    """What stands under `model.` in the names of the parameters."""

    def __init__(self, shape: Shape, style: Style) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Block(shape, style) for _ in range(shape.layers))
        self.norm = Norm(None if style == "nanochat" else shape.hidden, shape.eps)


class TrainableTiny(nn.Module):
    """A causal language model of this shape with weights from a seed; equal seeds give equal weights."""

    def __init__(self, shape: Shape, *, style: Style = "llama", seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        if style not in ("llama", "nanochat"):
            raise unknown("style", style, ("llama", "nanochat"))
        if style == "nanochat" and (shape.tied or shape.experts or shape.qkv_bias):
            raise InputError("nanochat's model has its own head, no experts and no biases", where="style")
        self.shape, self.style = shape, style
        # Modules draw their first weights from the global generator, which belongs to the caller.
        with torch.random.fork_rng(devices=[]):
            self.model = _Body(shape, style)
            self.lm_head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        if shape.tied:
            self.lm_head.weight = self.model.embed_tokens.weight
        self._draw(seed)
        self.to(dtype)

    def _draw(self, seed: int) -> None:
        rng = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, weight in self.named_parameters():
                if weight.dim() == 1:
                    weight.fill_(1.0 if "norm" in name else 0.0)
                elif self.style == "nanochat" and name.endswith(("o_proj.weight", "down_proj.weight", "lm_head.weight")):
                    weight.zero_()
                else:
                    scale = 1.0 if "embed_tokens" in name and self.style == "nanochat" else 1 / math.sqrt(weight.shape[-1])
                    weight.copy_(scale * torch.randn(weight.shape, generator=rng))

    def forward(self, ids: Tensor) -> Tensor:
        """Map token ids [batch, tokens] to logits [batch, tokens, vocabulary]."""
        x = ids
        for piece in self.pieces():
            x = piece(x)
        return x

    def pieces(self) -> list[nn.Module]:
        """The embedding, each layer, and the head, which one after the other are the whole model. They share its parameters."""
        after = Norm(None, self.shape.eps) if self.style == "nanochat" else None
        body = self.model
        return [First(body.embed_tokens, after), *body.layers, Last(body.norm, self.lm_head)]

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        """The mean cross entropy in nats of `targets` [batch, tokens], over those that are not `NO_TARGET`."""
        return cross_entropy(self(ids), targets)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean cross entropy in nats of `targets` [batch, tokens] under `logits` [batch, tokens, vocabulary]."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return fn.cross_entropy(wide.flatten(0, 1), targets.flatten(), ignore_index=NO_TARGET)
