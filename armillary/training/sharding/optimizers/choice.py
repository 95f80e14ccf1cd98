"""The optimizer of a sharded module, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ..runtime.sharded import Sharded


def optimizer(name: str, sharded: Sharded, lr: float, options: Mapping[str, Any]) -> Any:
    """AdamW on the shards as PyTorch has it, or one of the optimizers here; all share the defaults of AdamW."""
    if name == "adamw":
        return torch.optim.AdamW(list(sharded.parameters()), lr=lr, **{"weight_decay": 0.01, **options})
    if name == "adam8bit":
        from .adam8bit import Adam8bit

        return Adam8bit(sharded, lr=lr, **options)
    if name == "muon":
        from .muon import ShardedMuon

        return ShardedMuon(sharded, lr=lr, **options)
    from .shampoo import Shampoo

    return Shampoo(sharded, lr=lr, **options)
