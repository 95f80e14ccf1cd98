"""A model cut over tiers, and its export to other programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from armillary.errors import InputError

from ..nodes.stage_cost import BlockCosts
from .bsdp import stages


@dataclass(frozen=True)
class TierPlan:
    """Tier j has blocks cuts[j−1] to cuts[j]. `bound_s` is the planner's estimate of a request's seconds on its slowest stage."""

    model: str
    tiers: tuple[str, ...]
    blocks: int
    cuts: tuple[int, ...]
    bound_s: float = float("nan")

    @property
    def segments(self) -> list[tuple[int, int]]:
        """(first block, one past the last) of each tier."""
        return stages(self.cuts, self.blocks)

    def table(self) -> Any:
        """Returns a Polars frame with tier, first and last block, and the number of blocks."""
        import polars as pl

        rows = [(name, lo, hi - 1, hi - lo) for name, (lo, hi) in zip(self.tiers, self.segments, strict=True)]
        return pl.DataFrame(rows, schema=["tier", "first_block", "last_block", "blocks"], orient="row")

    def pipeline_split(self, prefix: str = "model.layers") -> list[str]:
        """Returns the names of the modules before which `torch.distributed.pipelining.pipeline(split_spec=…)` splits."""
        return [f"{prefix}.{cut}" for cut in self.cuts if 0 < cut < self.blocks]

    def llama_cpp(self, hosts: Sequence[str] = ()) -> list[str]:
        """Returns arguments of llama.cpp's server: the layers per worker, and the workers' addresses (`host:port`)."""
        counts = [hi - lo for lo, hi in self.segments if hi > lo]
        said = ["--tensor-split", ",".join(map(str, counts))]
        if hosts:
            if len(hosts) != len(counts):
                raise InputError(f"hosts: found {len(hosts)}; expected {len(counts)}, one for each tier that has blocks")
            said += ["--rpc", ",".join(hosts)]
        return said


def plan_of(costs: BlockCosts, cuts: Sequence[int], bound_s: float = float("nan")) -> TierPlan:
    """Returns the plan with these cuts."""
    return TierPlan(costs.model.name, tuple(t.name for t in costs.hierarchy.tiers), costs.blocks, tuple(int(c) for c in cuts), bound_s)
