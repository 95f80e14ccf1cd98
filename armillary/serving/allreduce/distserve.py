"""DistServe runs prefill and decode on different GPUs, each with suitable parallelism, so that most requests meet both bounds.

Layouts are enumerated, scored and simulated (`planning/planner.py`), and the one with the highest goodput is kept. All-reduces use NVLink
first, then a ring. Every technique of this arena shares the planner, with its own collectives in the score.

Zhong et al., DistServe: disaggregating prefill and decoding for goodput-optimized large language model serving, OSDI 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.claim import Claim, Kind, Level

from .hierarchical import Hierarchical


@dataclass(frozen=True)
class DistServe(Hierarchical):
    """Goodput-optimal placement of prefill and decode, hierarchical all-reduce (DistServe, OSDI 2024)."""

    claims = (
        Claim(
            "sync_share",
            by=Level(at_least=0.65),
            on=Kind("spanning"),
            says="over 65 % of the delay is synchronisation when a model is parallel across servers",
            source="HeroServe, CLUSTER 2025, motivation",
        ),
    )
