"""One serving instance: its model and device, its batching policy, and its KV memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from armillary.errors import InputError, unknown

from ..cost.iteration import IterationCost

if TYPE_CHECKING:
    from ..model.shapes import Model
    from .fitting import Fitted
    from .fleet import Serving
    from .requests import Requests
    from .result import Result

POLICIES = ("vllm", "sarathi", "orca", "static", "sglang", "sjf-oracle", "priority")
ROLES = ("both", "prefill", "decode")


@dataclass(frozen=True)
class Adapters:
    """The adapters that requests may name: their ranks, and the seconds to load each onto the device from the host and from disk."""

    rank: Sequence[int]
    host_s: Sequence[float] | float = 0.0
    disk_s: Sequence[float] | float = 0.0

    def __post_init__(self) -> None:
        if any(r < 1 for r in self.rank):
            raise InputError(f"rank: found {min(self.rank)}; expected ranks of at least 1")
        for name in ("host_s", "disk_s"):
            value = np.asarray(getattr(self, name), float)
            if not np.all(value >= 0) or (value.ndim and len(value) != len(self.rank)):
                raise InputError(f"{name}: expected seconds of 0 or more, either one number or one per adapter ({len(self.rank)})")


@dataclass(frozen=True)
class Replica:
    """One serving instance, as an engine would be started.

    `cost` gives the seconds of an iteration; without it they come from `model` on `tp` devices of kind `device` (`StepCost`). `blocks`
    blocks of `block` tokens hold the KV; without a number, they fill the memory that `model` leaves free on the device. `slots` adapters of
    rank up to `max_rank` fit on the device at once, `host_adapters` on the host. `policy` is a name, or a function of a `Serving` and a
    replica's number that returns [(request, tokens)] for the next iteration.
    """

    model: Model | str | None = None
    device: str = "h100-sxm"
    tp: int = 1
    pp: int = 1
    policy: str | Callable[[Serving, int], list[tuple[int, int]]] = "vllm"
    max_batched_tokens: int = 2048
    max_seqs: int = 256
    long_prefill_threshold: int = 0
    block: int = 16
    blocks: int | None = None
    prefix_cache: bool = True
    preemption: Literal["recompute", "swap"] = "recompute"
    swap_tokens: int = 0
    swap_token_s: float = 0.0
    slots: int = 0
    max_rank: int = 16
    host_adapters: int = 10**6
    async_load: bool = False
    draft: int = 0
    acceptance: Sequence[float] = (0.7,)
    max_output: int | None = None
    max_model_len: int | None = None
    memory_share: float = 0.9
    reserve_bytes: float = 2.0 * 2**30
    role: Literal["both", "prefill", "decode"] = "both"
    cost: IterationCost | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.policy, str) and self.policy not in POLICIES:
            raise unknown("policy", self.policy, POLICIES)
        if self.role not in ROLES:
            raise unknown("role", self.role, ROLES)
        for name in ("max_batched_tokens", "max_seqs", "block", "tp", "pp"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: found {getattr(self, name)}; expected at least 1")
        if self.draft < 0 or self.slots < 0 or self.draft > 32:
            raise InputError(f"draft, slots: found {self.draft}, {self.slots}; expected 0 or more, and at most 32 drafts")
        if self.draft and not all(0.0 <= a <= 1.0 for a in self.acceptance):
            raise InputError(f"acceptance: found {tuple(self.acceptance)}; expected chances from 0 to 1")
        if self.preemption not in ("recompute", "swap"):
            raise unknown("preemption", self.preemption, ("recompute", "swap"))
        if self.cost is None and self.model is None:
            raise InputError("a replica needs a model and a device, or a cost")
        if self.blocks is None and self.model is None:
            raise InputError("blocks: expected a number, because there is no model to compute it from")

    def shape(self) -> Model:
        """The shapes of the model."""
        from ..model.shapes import Model

        if self.model is None:
            raise InputError("model: this replica was given a cost and no model")
        return Model.preset(self.model) if isinstance(self.model, str) else self.model

    def priced(self) -> IterationCost:
        """The cost of the replica's iterations."""
        if self.cost is not None:
            return self.cost
        from ..cost.step_cost import StepCost

        return StepCost.build(self.shape(), self.device, tp=self.tp, pp=self.pp)

    def kv_blocks(self) -> int:
        """The number of KV blocks that fit beside the weights, the adapter slots and the engine's reserve."""
        if self.blocks is not None:
            if self.blocks < 1:
                raise InputError(f"blocks: found {self.blocks}; expected at least 1")
            return self.blocks
        from ..cost.memory import kv_blocks

        return kv_blocks(self)

    def run(self, requests: Requests, *, until_s: float = float("inf"), adapters: Adapters | None = None, **options: Any) -> Result:
        """Serves `requests` alone, to the end or for `until_s` seconds."""
        from .fleet import Fleet

        return Fleet([self]).run(requests, until_s=until_s, adapters=adapters, **options)

    def fit(self, *runs: str | Path | Mapping[str, Any]) -> Fitted:
        """This replica with its cost fitted to measured runs: files of `vllm bench serve --save-detailed`, or records."""
        from .fitting import fit

        return fit(self, runs)
