"""`TypedAttention`: self-attention over a set of typed tokens, some of which may be padding.

A token is `Linear(features) + type vector`. Blocks are pre-norm: `x += MHA(LN(x)); x += FFN(LN(x))` with GELU. There is no positional
code, so permuting the tokens permutes the outputs. A learned pair bias may be added to the logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from .kinds import MlpConfig, TypedAttentionConfig
from .perceptron import Block, Mlp


def open_mask(mask: Tensor) -> Tensor:
    """`mask` [batch, keys] with rows that allow nothing opened, so that the softmax is finite; their results are not used."""
    return mask | ~mask.any(-1, keepdim=True)


class AttentionBlock(nn.Module):
    """One pre-norm block with `heads` heads."""

    def __init__(self, d: int, heads: int, ffn: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)
        self.norm2 = nn.LayerNorm(d)
        self.ffn1 = nn.Linear(d, ffn)
        self.ffn2 = nn.Linear(ffn, d)

    def forward(self, x: Tensor, bias: Tensor | None, token: int | None = None) -> Tensor:
        """[batch, tokens, d]; `bias` is added to the logits, [batch or 1, heads or 1, tokens or 1, tokens].

        token: the only token that is wanted, [batch, 1, d]; the others are then only attended to.
        """
        batch, tokens, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if token is not None:
            x, q = x[:, token : token + 1], q[:, :, token : token + 1]
            bias = bias[:, :, token : token + 1] if bias is not None and bias.shape[2] > 1 else bias
        found = fn.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = x + self.out(found.transpose(1, 2).reshape(batch, -1, d))
        made: Tensor = x + self.ffn2(fn.gelu(self.ffn1(self.norm2(x))))
        return made


class TypedAttention(Block[TypedAttentionConfig]):
    """Attention over [batch, tokens, inputs] with token types [batch, tokens] and a mask that is true for real tokens."""

    def __init__(
        self, inputs: int | TypedAttentionConfig, d: int = 64, heads: int = 4, layers: int = 2, *, ffn: int | None = None, types: int = 1,
        pair_bias: Literal["types", "edges"] | None = None, edges: int = 1, readout: Literal["token", "mean", "attention"] = "token",
        head: Sequence[int] = (), outputs: int = 0, seed: int = 0,
    ) -> None:  # fmt: skip
        made = inputs if isinstance(inputs, TypedAttentionConfig) else TypedAttentionConfig(
            inputs=inputs, d=d, heads=heads, layers=layers, ffn=ffn, types=types, pair_bias=pair_bias, edges=edges, readout=readout,
            head=tuple(head), outputs=outputs,
        )  # fmt: skip
        super().__init__(made, seed)

    def _build(self, config: TypedAttentionConfig) -> None:
        self.type_embedding = nn.Parameter(torch.empty(config.types, config.d))
        if config.pair_bias is not None:
            shape = (config.types, config.types) if config.pair_bias == "types" else (config.edges,)
            self.bias = nn.Parameter(torch.empty(config.layers, config.heads, *shape))
        if config.readout == "attention":
            self.query = nn.Parameter(torch.empty(config.d))
        self.embed = nn.Linear(config.inputs, config.d)
        self.blocks = nn.ModuleList(AttentionBlock(config.d, config.heads, config.ffn or 2 * config.d) for _ in range(config.layers))
        if config.outputs:
            self.head = Mlp(MlpConfig(inputs=config.d, hidden=config.head, outputs=config.outputs))

    def tokens(
        self, x: Tensor, types: Tensor | None = None, mask: Tensor | None = None, edges: Tensor | None = None, only: int | None = None
    ) -> Tensor:
        """The tokens after all blocks, [batch, tokens, d]; with `only`, that token alone, [batch, 1, d].

        edges: with `pair_bias="edges"`, the kind of edge from token i to token j, [batch, tokens, tokens], from 0; −1 is no edge.
        """
        batch, n, _ = x.shape
        types = torch.zeros(batch, n, dtype=torch.long, device=x.device) if types is None else types.long()
        real = torch.ones(batch, n, dtype=torch.bool, device=x.device) if mask is None else mask.bool()
        # Whatever stands in a padding token must not reach the others, and 0 times infinity is not 0.
        x = self.embed(torch.where(real[..., None], x, 0.0)) + self.type_embedding[types]
        padding = torch.zeros(batch, 1, 1, n, device=x.device).masked_fill(~open_mask(real)[:, None, None, :], float("-inf"))
        for i, block in enumerate(self.blocks):
            x = block(x, padding + self._pair_bias(i, types, edges), only if i == len(self.blocks) - 1 else None)
        return x

    def _pair_bias(self, layer: int, types: Tensor, edges: Tensor | None) -> Tensor | float:
        if self.config.pair_bias == "types":
            return self.bias[layer][:, types[:, :, None], types[:, None, :]].transpose(0, 1)
        if self.config.pair_bias == "edges" and edges is not None:
            picked = self.bias[layer][:, edges.long().clamp(min=0)].transpose(0, 1)
            return picked * (edges >= 0)[:, None]
        return 0.0

    def features(
        self, x: Tensor, types: Tensor | None = None, mask: Tensor | None = None, edges: Tensor | None = None, token: int = 0
    ) -> Tensor:
        """The read-out, [batch, d]: the chosen token, the mean over real tokens, or attention pooling; 0 for a set without tokens."""
        found = self.tokens(x, types, mask, edges, token if self.config.readout == "token" else None)
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask.bool()
        if self.config.readout == "token":
            read = found[:, 0 if len(self.blocks) else token]
        elif self.config.readout == "mean":
            read = torch.where(real[..., None], found, 0.0).sum(1) / real.sum(1, keepdim=True).clamp(min=1)
        else:
            logits = (found @ self.query / self.config.d**0.5).masked_fill(~open_mask(real), float("-inf"))
            read = (logits.softmax(-1)[..., None] * found).sum(1)
        return torch.where(real.any(1, keepdim=True), read, 0.0)

    def forward(
        self, x: Tensor, types: Tensor | None = None, mask: Tensor | None = None, edges: Tensor | None = None, token: int = 0
    ) -> Tensor:
        """[batch, outputs], or [batch, d] without a head."""
        found = self.features(x, types, mask, edges, token)
        return self.head(found) if self.config.outputs else found
