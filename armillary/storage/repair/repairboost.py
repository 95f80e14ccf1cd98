"""RepairBoost: balance many repairs over nodes and links before running them.

Each lost block keeps the shape of a known repair (a chain as in repair pipelining, or PPR's binary tree). Its vertices go to the nodes
with the least accumulated upload and download time, and its destination to the node with the least download time. Blocks are then
released so that idle links get work: among the waiting blocks, the one whose busiest link is least busy comes next.

RepairBoost: boosting full-node repair in erasure-coded storage, USENIX ATC 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from armillary.parameters import parameter

from .plans.plan import PIPELINE, RepairPlan
from .plans.planner import DESTINATION, Ends, Part, Planner, Split
from .plans.problem import Problem
from .ppr import Ppr


@dataclass(frozen=True)
class RepairBoost(Planner):
    """Chains or binary trees over the least-used nodes, released where links idle (ATC 2021). It takes failed nodes, not single stripes."""

    name: ClassVar[str] = "repairboost"

    single_blocks: ClassVar[bool] = False
    shape: Literal["rp", "ppr"] = parameter("rp", "the shape of each block's repair", choices=("rp", "ppr"))

    def split(self, ends: Ends) -> Split:
        """The shape over the k nodes that would finish first with one more upload and download."""
        with np.errstate(divide="ignore"):
            time = 1.0 / ends.up + 1.0 / ends.down
        chosen = np.argsort(time, kind="stable")[: ends.k]
        if not np.isfinite(time[chosen]).all():
            # Nodes that cannot receive may still be first.
            chosen = np.argsort(-ends.up, kind="stable")[: ends.k]
        if self.shape == "ppr":
            part = ends._replace(up=ends.up[chosen], down=ends.down[chosen], rack=ends.rack[chosen])
            split = Ppr().split(part)
            edges = tuple((int(chosen[c]), DESTINATION if p == DESTINATION else int(chosen[p])) for c, p in split.parts[0].edges)
            return split._replace(parts=[Part(1.0, edges)])
        # The node that has downloaded most is first, because nothing comes in there.
        first = int(chosen[np.argmin(ends.down[chosen])])
        others = sorted((int(i) for i in chosen if i != first), key=lambda i: (ends.rack[i] == ends.into_rack, ends.rack[i], i))
        chain = [first, *others]
        rate = min(float(ends.up[chain].min()), float(ends.down[others].min()) if others else np.inf, ends.into)
        return Split(rate, PIPELINE, [Part(1.0, tuple(zip(chain, [*others, DESTINATION])))])

    def plan(self, problem: Problem) -> RepairPlan:
        """A plan whose blocks are released by which links are idle."""
        return replace(super().plan(problem), fit=True)
