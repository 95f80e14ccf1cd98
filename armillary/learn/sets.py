"""Set Transformer: attention between a set and a few learned vectors, so the cost grows linearly with the set.

`MAB(X, Y) = LN(H + FFN(H))` with `H = LN(X W + MHA(X, Y, Y))`; W is the query projection and FFN one linear layer with ReLU. ISAB lets
`inducing` learned vectors gather the set and the set read them back. PMA pools it with `seeds` learned queries. Masks hold everywhere,
and a set without elements gives a learned vector.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from .attention import open_mask
from .kinds import SetTransformerConfig
from .perceptron import Block


class Mab(nn.Module):
    """One multihead attention block from the rows of X to the rows of Y."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(d, d)
        self.kv = nn.Linear(d, 2 * d)
        self.out = nn.Linear(d, d)
        self.norm1 = nn.LayerNorm(d)
        self.ffn = nn.Linear(d, d)
        self.norm2 = nn.LayerNorm(d)

    def forward(self, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
        """[batch, n, d] from X [batch, n, d] and Y [batch, m, d], of which `mask` [batch, m] says what is real."""
        (batch, n, d), m = x.shape, y.shape[1]
        q = self.q(x)
        k, v = self.kv(y).view(batch, m, 2, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        allowed = None if mask is None else open_mask(mask)[:, None, None, :]
        found = fn.scaled_dot_product_attention(q.view(batch, n, self.heads, -1).transpose(1, 2), k, v, attn_mask=allowed)
        h = self.norm1(q + self.out(found.transpose(1, 2).reshape(batch, n, d)))
        made: Tensor = self.norm2(h + torch.relu(self.ffn(h)))
        return made


class Isab(nn.Module):
    """Self-attention of a set through `inducing` learned vectors."""

    def __init__(self, d: int, heads: int, inducing: int) -> None:
        super().__init__()
        self.inducing = nn.Parameter(torch.empty(inducing, d))
        self.gather = Mab(d, heads)
        self.spread = Mab(d, heads)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[batch, n, d]."""
        gathered = self.gather(self.inducing.expand(len(x), -1, -1), x, mask)
        found: Tensor = self.spread(x, gathered)
        return found


class Pma(nn.Module):
    """Pools a set with `seeds` learned queries into [batch, seeds, d]."""

    def __init__(self, d: int, heads: int, seeds: int) -> None:
        super().__init__()
        self.seeds = nn.Parameter(torch.empty(seeds, d))
        self.mab = Mab(d, heads)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[batch, seeds, d]."""
        found: Tensor = self.mab(self.seeds.expand(len(x), -1, -1), x, mask)
        return found


class SetTransformer(Block[SetTransformerConfig]):
    """A vector for each set of [batch, n, inputs], the same for every order of its elements."""

    def __init__(
        self, inputs: int | SetTransformerConfig, d: int = 32, heads: int = 4, *, isab: int = 2, inducing: int = 8, seeds: int = 1,
        outputs: int = 0, seed: int = 0,
    ) -> None:  # fmt: skip
        made = inputs if isinstance(inputs, SetTransformerConfig) else SetTransformerConfig(
            inputs=inputs, d=d, heads=heads, isab=isab, inducing=inducing, seeds=seeds, outputs=outputs
        )  # fmt: skip
        super().__init__(made, seed)

    def _build(self, config: SetTransformerConfig) -> None:
        self.empty = nn.Parameter(torch.empty(config.seeds * config.d))
        self.embed = nn.Linear(config.inputs, config.d)
        self.blocks = nn.ModuleList(Isab(config.d, config.heads, config.inducing) for _ in range(config.isab))
        self.pool = Pma(config.d, config.heads, config.seeds)
        if config.outputs:
            self.head = nn.Linear(config.seeds * config.d, config.outputs)

    def features(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The pooled set, [batch, seeds · d]."""
        batch, n, _ = x.shape
        if n == 0:
            return self.empty.expand(batch, -1)
        real = torch.ones(batch, n, dtype=torch.bool, device=x.device) if mask is None else mask.bool()
        x = self.embed(torch.where(real[..., None], x, 0.0))
        for block in self.blocks:
            x = block(x, real)
        pooled = self.pool(x, real).reshape(batch, -1)
        return torch.where(real.any(1, keepdim=True), pooled, self.empty)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[batch, outputs], or the pooled set without a head."""
        found = self.features(x, mask)
        return self.head(found) if self.config.outputs else found
