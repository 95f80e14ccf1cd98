"""HeroServe plans with NVLink and the switch in mind, and then splits every collective between switch and ring by what is free now.

The switch aggregates best until bursts and other jobs use up its slots, and NVLink reduces first at almost no cost. An all-reduce is
therefore split: x of the bytes go through the switch and 1−x round a ring of the servers, at the same time and over the same NICs, with
x* = min(1, ρS/(B + (ρ−1)S)), at which both end together. Offline, the planner places prefill and decode with those times, gives each
group a home switch (most bytes first, to the least loaded), and reserves slots for decoding, whose collectives are small and periodic.
Online, each collective computes x from the present slots and links, unless it hardly differs from the last one. Prompts are sent in
chunks, after which they release their slots, and after decoding. A group whose switch is a quarter busier than another moves between
iterations, and requests go where they are expected to end first.

Scalable and Fast Inference Serving via Hybrid Communication Scheduling on Heterogeneous Networks, IEEE CLUSTER 2025. Only the abstract is
public. The offline planner of computation and communication and the online scheduler for traffic and load are the paper's; the formula
for x, the score, the reservation, the moves and the constants are our design.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from armillary.claim import Claim, Gain, Kind, Parity
from armillary.parameters import parameter

from .collectives.path import Path
from .collectives.technique import Collective

_RIVALS = ("ina", "atp", "distserve")
_WHY = "another cluster, and every rival gets the same planner with its own collectives: 1.2 to 1.8 times is the published order"


@dataclass(frozen=True)
class HeroServe(Collective):
    """Hybrid all-reduce: switch and ring at once, by what is free (HeroServe, CLUSTER 2025; algorithms ours)."""

    chunk_kib: int = parameter(1024, "the KiB of a prompt's collective after which its slots are released", range=(64, 1 << 20))
    hysteresis: float = parameter(0.1, "the relative change of x below which x stays as it is", range=(0.0, 1.0))
    rehome: Literal["never", "iteration", "collective"] = parameter(
        "iteration", "when a group may change its switch", choices=("never", "iteration", "collective")
    )
    rehome_margin: float = parameter(0.25, "how much busier than another a switch must be before a group leaves it", range=(0.0, 10.0))
    decode_first: bool = parameter(True, "whether decoding goes before prompts on links and chips, with reserved slots")

    aware = True
    by_finish = True
    claims = (
        Claim(
            "max_rate", over=_RIVALS, by=Gain(ratio=(1.53, None)), on=Kind("bursts", "spanning"), honest=(1.2, 1.8), why=_WHY,
            says="1.53 times the rate of the state of the art, under bursts, where groups span servers", source="abstract",
        ),
        Claim(
            "max_rate", over=_RIVALS, by=Gain(ratio=(1.53, None)), on=Kind("bursts", "planned"), honest=(1.2, 1.8), why=_WHY,
            says="1.53 times the rate of the state of the art, under bursts, where the planner is free to place", source="abstract",
        ),
        Claim(
            "max_rate", over=_RIVALS, by=Parity(within=0.1), on=Kind("calm"),
            says="about as good as the best of the others when nothing disturbs", source="ours: without bursts there is little to schedule",
        ),
        Claim(
            "ttft_p90", over=_RIVALS, by=Gain(ratio=(1.0, None)), on=Kind("bursts", "spanning"),
            says="with lower latency to the first token", source="abstract",
        ),
        Claim(
            "tpot_p90", over=_RIVALS, by=Gain(ratio=(1.0, None)), on=Kind("bursts", "spanning"),
            says="with lower latency of each token", source="abstract",
        ),
    )  # fmt: skip

    @property
    def path(self) -> Path:
        return Path(
            choice="best", first=self.decode_first, chunk=1024.0 * self.chunk_kib, hysteresis=self.hysteresis, rehome=self.rehome,
            rehome_margin=self.rehome_margin,
        )  # fmt: skip
